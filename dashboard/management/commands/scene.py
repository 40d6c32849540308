"""`manage.py scene NAME`: play a scene into the running sandbox; without a name, list them."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from sandbox.scenes.scenes import SCENES, SandboxError, play, stack_kafka


class Command(BaseCommand):
    """Play a scene against the Kafka of the stack in `.data/stack.json`, and no other."""

    help = "Play a scene into the running sandbox: " + ", ".join(SCENES)
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the scene's name."""
        parser.add_argument("name", nargs="?", help="which scene; none lists them")

    def handle(self, *args: Any, **options: Any) -> None:
        """Play or list; an error is one line and exit status 1."""
        if not options["name"]:
            for name, scene in SCENES.items():
                self.stdout.write(f"{name:<12} {scene.summary}")
            return
        try:
            play(options["name"], stack_kafka(settings.DATA / "stack.json"), self.stdout.write)
        except SandboxError as error:
            raise CommandError(str(error)) from None
        except KeyboardInterrupt:
            raise CommandError("ended by Ctrl-C; what the scene had stopped or turned off goes on") from None
