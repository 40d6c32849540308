"""The checked options of `make up`: all of its variables."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from sandbox import SandboxError

ROOT = Path(__file__).resolve().parent.parent
_SERVERS = re.compile(r"[^\s,:]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}")


class DemoSize(StrEnum):
    """The size of the demo: values of `DEMO`."""

    #: The whole demo.
    FULL = "1"
    #: The whole demo, but without automatic scenes.
    QUIET = "quiet"
    #: The same, without the second query and the Spark jobs.
    LITE = "lite"
    NONE = "0"


@dataclass(frozen=True, slots=True)
class StackOptions:
    """Texts are "" by default; without `database_url` and `redis_url` the embedded servers are used."""

    data: Path
    port: int
    #: Workers that share the partitions of an internal topic.
    shards: int
    #: Number of brokers of the sandbox's own Kafka: 1 or 3.
    brokers: int
    bootstrap: str
    config: str
    demo: DemoSize
    database_url: str
    redis_url: str
    #: Whether one worker runs all tasks, with beat inside.
    small: bool
    #: The TCP port of the embedded Redis beside its socket; 0: none.
    redis_port: int
    password: str

    @property
    def has_own_kafka(self) -> bool:
        return not self.bootstrap and not self.config

    @property
    def has_demo(self) -> bool:
        return self.has_own_kafka and self.demo is not DemoSize.NONE

    @property
    def has_full_demo(self) -> bool:
        """Whether the Spark jobs run in this stack, too."""
        return self.has_own_kafka and self.demo in (DemoSize.FULL, DemoSize.QUIET)


def read_options(environment: Mapping[str, str]) -> StackOptions:
    """Read the options from the environment, where make puts its variables. Raises SandboxError."""
    get = environment.get
    options = StackOptions(
        data=Path(get("FENCELINE_DATA") or ROOT / ".data").absolute(),
        port=_number(environment, "PORT", 8000, 65535),
        shards=_number(environment, "SHARDS", 1, 50),
        brokers=int(_choice("BROKERS", get("BROKERS") or "1", ("1", "3"), "1 or 3")),
        bootstrap=_servers(get("BOOTSTRAP", "")),
        config=_file(get("CONFIG", "")),
        demo=DemoSize(_choice("DEMO", get("DEMO") or "1", tuple(DemoSize), "1, quiet, lite or 0")),
        database_url=get("DATABASE_URL", ""),
        redis_url=get("REDIS_URL", ""),
        small=_choice("SMALL", get("SMALL", ""), ("", "1"), "1, or leave it out") == "1",
        redis_port=_number(environment, "REDIS_PORT", 0, 65535) if get("REDIS_PORT") else 0,
        password=get("FENCELINE_ADMIN_PASSWORD", ""),
    )
    if options.bootstrap and options.config:
        raise SandboxError("BOOTSTRAP and CONFIG both name clusters: give one of them")
    if options.small and options.shards > 1:
        raise SandboxError("SMALL=1 has one worker for all, and SHARDS asks for more: give one of them")
    if options.redis_port and options.redis_url:
        raise SandboxError("REDIS_PORT is for the embedded Redis: leave it out with REDIS_URL")
    if options.brokers > 1 and not options.has_own_kafka:
        raise SandboxError("BROKERS is for the sandbox's own Kafka: leave it out with BOOTSTRAP and CONFIG")
    return options


def _number(environment: Mapping[str, str], name: str, default: int, highest: int) -> int:
    text = environment.get(name) or str(default)
    if not text.isdigit() or not 1 <= int(text) <= highest:
        raise SandboxError(f"{name}={text}: give a number from 1 to {highest}")
    return int(text)


def _choice(name: str, text: str, allowed: Sequence[str], words: str) -> str:
    if text not in allowed:
        raise SandboxError(f"{name}={text}: give {words}")
    return text


def _servers(text: str) -> str:
    if text and not all(_SERVERS.fullmatch(server) for server in text.split(",")):
        raise SandboxError(f"BOOTSTRAP={text}: give host:port, several with commas between")
    return text


def _file(text: str) -> str:
    if text and not Path(text).is_file():
        raise SandboxError(f"CONFIG={text}: no such file (start from fenceline.example.toml)")
    return str(Path(text).absolute()) if text else ""
