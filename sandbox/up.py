"""`make up`: the parts of a stack, and the order of their starts.

redis, prepare          before web
redis, prepare, kafka   before each worker-tail, worker-pollers, beat; with SMALL=1 before worker
kafka                   before demo
kafka, web, workers     before spark, scenes

With BROKERS=3 the parts kafka-1 to kafka-3 replace kafka.
"""

import os
import secrets
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from sandbox import SandboxError, cluster, folder, kafka, prepared, redis
from sandbox.java import fetch_jars, find_java
from sandbox.options import ROOT, StackOptions, read_options
from sandbox.ports import HOST, require_free
from sandbox.processes import print_line
from sandbox.receiver.server import DemoReceiver
from sandbox.scenes import player as scenes
from sandbox.stack import address_lines, write_config
from sandbox.supervisor import Part, Supervisor

#: uvicorn's options, the same for every address.
WEB_OPTIONS = (
    "--ws-per-message-deflate", "false", "--timeout-graceful-shutdown", "5",
    "--http", "dashboard.web.server.http_protocol:Protocol", "--limit-concurrency", "500",
    "--ws-max-size", "4096", "--no-access-log", "--log-level", "warning",
)  # fmt: skip
#: After this time an empty page no longer announces the demo's query.
SPARK_STARTS_WITHIN_S = 300
#: The parent process; it changes when that process has died.
_PARENT = os.getppid()


class Stack:
    """One deployment: options and ports in, parts and their environment out."""

    def __init__(self, options: StackOptions) -> None:
        """Choose ports, make secrets and write the configuration. The folder is already locked."""
        self.options, self.data = options, options.data
        self.python = sys.executable
        self._nodes = _nodes(options)
        named = [f"{name}{part}" for name in self._nodes for part in ("", "_controller")]
        named += ["receiver"] if options.has_demo else []
        self._ports = folder.assign_ports(self.data, tuple(named))
        self._receiver = DemoReceiver(self.data, self._ports["receiver"]) if options.has_demo else None
        self.is_up = False
        self._base = os.environ.get("FENCELINE_BASE_PATH", "").rstrip("/")
        self.url = f"http://{HOST}:{options.port}{self._base}/"
        password = folder.stored_secret(self.data, "redis_password", lambda: secrets.token_urlsafe(32))
        self._redis = redis.Server(self.data / "redis", password, options.redis_port)
        self.redis_url = options.redis_url or self._redis.url
        self.database_url = options.database_url or f"sqlite:///{self.data / 'fenceline.db'}"
        own = ",".join(f"{HOST}:{self._ports[name]}" for name in self._nodes)
        self.bootstrap = own or options.bootstrap
        self.password = options.password or folder.stored_secret(self.data, "admin_password")
        self.environment = self._environment()

    def _environment(self) -> dict[str, str]:
        return {
            "DJANGO_SETTINGS_MODULE": "dashboard.settings",
            "FENCELINE_CONFIG": self.options.config or str(self._write_config()),
            "FENCELINE_DATA": str(self.data),
            "DATABASE_URL": self.database_url,
            "REDIS_URL": self.redis_url,
            "SECRET_KEY": folder.stored_secret(self.data, "secret_key", lambda: secrets.token_urlsafe(50)),
            "FENCELINE_INGEST_TOKEN": folder.stored_secret(
                self.data, "ingest_token", lambda: secrets.token_urlsafe(32)
            ),
            "SHARDS": str(self.options.shards),
            "FENCELINE_BASE_PATH": self._base,
            "ALLOWED_HOSTS": os.environ.get("ALLOWED_HOSTS") or "127.0.0.1,localhost",
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
        }

    def _write_config(self) -> Path:
        return write_config(
            self.options,
            bootstrap=self.bootstrap,
            external_url=self.url.rstrip("/"),
            receiver=f"{HOST}:{self._receiver.port}" if self._receiver else "",
            job_outputs=self._job_outputs,
        )

    @property
    def _job_outputs(self) -> Path:
        """The output folder of the demo's Spark jobs."""
        return self.data / "spark" / "outputs"

    def write_stack(self, running: Mapping[str, int]) -> None:
        """Write stack.json once all parts run, and at every change; a full disk must not end the stack."""
        if not self.is_up:
            return
        try:
            folder.write_stack(self.data, self.describe(), running)
        except SandboxError as error:
            print_line(str(error))

    def describe(self) -> dict[str, str | None]:
        """Return the content of stack.json without the parts."""
        password = "the password in FENCELINE_ADMIN_PASSWORD" if self.options.password else self.password
        return {
            "url": self.url,
            "kafka": self.bootstrap or None,
            "redis": self.redis_url,
            "database": self.database_url,
            "data_dir": str(self.data),
            "sign_in": f"Sign in as admin with {password}, unless it was changed",
        }

    def list_parts(self) -> list[Part]:
        own = Part("redis", self._redis.command, ready=self._redis.is_ready, stage=0)
        parts = [] if self.options.redis_url else [own]
        parts.append(self._prepare())
        parts += self._kafka()
        needs = tuple(part.name for part in parts)
        parts += [*self._workers(needs), self._web(needs)]
        if self._receiver:
            parts += [self._receiver.part(), *self._demo()]
        return [*parts, self._scenes()] if self.options.has_own_kafka else parts

    def _kafka(self) -> list[Part]:
        """Return the sandbox's own brokers; empty if the stack watches another Kafka."""
        if not self._nodes:
            return []
        cluster.require_size(self.data / "kafka", self.options.brokers)
        ports = [self._ports[name] for name in self._nodes]
        controllers = [self._ports[f"{name}_controller"] for name in self._nodes]
        if self.options.brokers == 1:
            alone = kafka.Broker(
                self.data / "kafka", port=ports[0], controller_port=controllers[0], progress=print_line
            )
            return [_broker(self._nodes[0], alone, alone.prepare)]
        all_nodes = cluster.KafkaCluster(
            self.data / "kafka", ports=ports, controller_ports=controllers, progress=print_line
        )
        return [
            _broker(name, broker, partial(all_nodes.prepare, broker))
            for name, broker in zip(self._nodes, all_nodes.brokers, strict=True)
        ]

    def _receiver_environment(self) -> dict[str, str]:
        return {"FENCELINE_DEMO_RECEIVER": self._receiver.page if self._receiver else ""}

    def _prepare(self) -> Part:
        own = {
            "FENCELINE_ADMIN_PASSWORD": self.password,
            "FENCELINE_DEMO_RECEIVER_SECRET": self._receiver.signing_secret if self._receiver else "",
        }
        environment = {**self.environment, **self._receiver_environment(), **own}
        return Part("prepare", [self.python, str(ROOT / "manage.py"), "prepare"], environment, once=True)

    def _workers(self, needs: tuple[str, ...]) -> list[Part]:
        clusters = self._cluster_count()
        schedule = ("-s", str(self.data / "beat"))
        # Processes for operators' and short tasks: pollers share separate threads (dashboard/tasks/slice.py).
        slots = 20
        if self.options.small:
            queues, all_slots = "default,tail-0,offsets-0", str(slots + 2 * clusters)
            return [self._celery("worker", needs, "worker", "-B", *schedule, "-Q", queues, "-c", all_slots)]
        tails = [
            self._celery(
                f"worker-tail-{shard}",
                needs,
                "worker",
                "-Q",
                f"tail-{shard},offsets-{shard}",
                "-c",
                str(2 * clusters),
            )
            for shard in range(self.options.shards)
        ]
        pollers = self._celery("worker-pollers", needs, "worker", "-Q", "default", "-c", str(slots))
        return [*tails, pollers, self._celery("beat", needs, "beat", *schedule)]

    @property
    def _pollers(self) -> str:
        """The worker of the queue `default`."""
        return "worker" if self.options.small else "worker-pollers"

    def _celery(self, name: str, needs: tuple[str, ...], role: str, *arguments: str) -> Part:
        # One machine has no other workers to search for: this saves a second at each start.
        alone = ("--without-mingle", "--without-gossip", "--without-heartbeat")
        worker = ("-P", "threads", "-n", f"{name}@fenceline", *alone)
        extra = worker if role == "worker" else ("--pidfile=",)
        # Tasks are JSON from our own Redis: Celery's warning about root does not apply.
        python = [self.python, "-W", "ignore:You're running the worker"]
        # At INFO a worker logs its readiness; the settings mute its lines about tasks.
        celery = ["-m", "celery", "-q", "-A", "dashboard.celery", role, "-l", "INFO"]
        command = [*python, *celery, *arguments, *extra]
        ready = " ready." if role == "worker" else ""
        return Part(name, command, self.environment, after=needs, stage=2, ready_line=ready)

    def _cluster_count(self) -> int:
        """The number of clusters in the file; the settings report mistakes in the file."""
        try:
            settings = tomllib.loads(Path(self.environment["FENCELINE_CONFIG"]).read_text())
            return max(1, len(settings["clusters"]))
        except (OSError, ValueError, KeyError, TypeError):
            return 1

    def _web(self, needs: tuple[str, ...]) -> Part:
        command = [
            self.python, "-m", "uvicorn", "dashboard.asgi:application", "--host", HOST, "--port",
            str(self.options.port), *WEB_OPTIONS,
        ]  # fmt: skip
        needs = tuple(name for name in needs if name not in self._nodes)
        # uvicorn's default lets every process of this machine claim any client address.
        proxies = {"FORWARDED_ALLOW_IPS": os.environ.get("FORWARDED_ALLOW_IPS", "")}
        return Part(
            "web",
            command,
            self.environment | self._receiver_environment() | self._spark_start() | proxies,
            ready=lambda: _is_ok(f"{self.url}readyz"),
            after=needs,
            stage=2,
        )

    def _spark_start(self) -> dict[str, str]:
        until_ms = round((time.time() + SPARK_STARTS_WITHIN_S) * 1000)
        return {"FENCELINE_DEMO_SPARK_UNTIL_MS": str(until_ms)} if self.options.has_demo else {}

    def _demo(self) -> list[Part]:
        demo = [self.python, "-m", "sandbox.demo", self.bootstrap]
        return [
            Part(
                "demo",
                demo,
                self.environment,
                ready_line="producing",
                after=self._nodes,
                stage=3,
                essential=False,
            ),
            Part(
                "spark",
                self._spark_command,
                self._spark_environment(),
                ready_line="finished its first batch",
                # A starting JVM takes a small machine's cores: the page comes first.
                after=(*self._nodes, "web", self._pollers),
                stage=3,
                essential=False,
                slow_after_s=120,
            ),
        ]

    def _scenes(self) -> Part:
        player = [
            "sandbox.scenes.player",
            str(self.data),
            str(self.options.brokers),
            self.options.demo.value,
        ]
        return Part(
            "scenes",
            [self.python, "-m", *player],
            self.environment,
            ready_line=scenes.READY_LINE,
            after=(*self._nodes, "web", self._pollers),
            stage=3,
            essential=False,
            # An interrupted scene first restores its changes.
            stop_within_s=40,
        )

    def _spark_environment(self) -> Mapping[str, str]:
        return {
            **self.environment,
            "FENCELINE_URL": self.url,
            "FENCELINE_TOKEN": self.environment["FENCELINE_INGEST_TOKEN"],
            "SPARK_LOCAL_IP": HOST,
            "PYSPARK_PYTHON": self.python,
        }

    def _spark_command(self) -> Sequence[str]:
        connector = ",".join(str(path) for path in fetch_jars("spark-connector", print_line))
        java = find_java(self.data)
        faster = prepared.archive_environment(java, print_line)
        query = [
            self.python,
            "-m",
            "sandbox.demo_query",
            self.bootstrap,
            str(self.data / "spark"),
            connector,
            *([str(self._job_outputs)] if self.options.has_full_demo else []),
        ]
        variables = {"JAVA_HOME": str(java.home), **faster}
        return ["env", *(f"{name}={value}" for name, value in variables.items()), *query]


def _nodes(options: StackOptions) -> tuple[str, ...]:
    """Return the part names of the sandbox's brokers."""
    if not options.has_own_kafka:
        return ()
    several = tuple(f"kafka-{number}" for number in range(1, options.brokers + 1))
    return several if options.brokers > 1 else ("kafka",)


def _broker(name: str, broker: kafka.Broker, prepare: Callable[[], None]) -> Part:
    def command() -> Sequence[str]:
        prepare()
        return broker.command()

    return Part(
        name,
        command,
        ready=lambda: broker.node_id in kafka.live_brokers(broker.bootstrap),
        stage=1,
        stop_within_s=20,
    )


def _is_ok(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 - our own loopback address
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def run_stack(options: StackOptions) -> int:
    """Start the stack and wait until it is stopped; return the exit status."""
    folder.make_folder(options.data)
    with folder.lock_folder(options.data, print_line):
        of_this_run = [options.data / name for name in ("stack.json", scenes.BOARD, scenes.REQUEST)]
        for path in of_this_run:
            path.unlink(missing_ok=True)
        folder.tighten_modes(options.data)
        require_free(options.port, "the web page", "choose another with PORT=")
        if options.redis_port:
            require_free(options.redis_port, "Redis", "choose another with REDIS_PORT=")
        stack = Stack(options)
        parts = stack.list_parts()
        supervisor = Supervisor(
            parts,
            options.data / "logs",
            on_ready=lambda waiting: _announce(stack, supervisor, waiting),
            on_change=stack.write_stack,
            remove_after=of_this_run,
            # If make is killed, Ctrl-C no longer reaches us.
            parent=_PARENT if "MAKELEVEL" in os.environ else 0,
        )
        status = supervisor.run()
    if supervisor.failure:
        raise SandboxError(supervisor.failure)
    return status


def _announce(stack: Stack, supervisor: Supervisor, waiting: list[str]) -> None:
    stack.is_up = True
    supervisor.report_parts()
    print_line("")
    if waiting:
        print_line(f"Still starting: {', '.join(waiting)}")
    if stack.options.has_own_kafka:
        print_line(f"Failures to play: {stack.url}scenes")
    print_line(f"Logs: {stack.data / 'logs'} · Ctrl-C stops everything · `make url` prints this again:")
    for line in address_lines(stack.describe()):
        print_line(line)
    print_line("")


def main() -> int:
    """Run `make up`; every error is one line on stderr and status 1."""
    os.umask(0o077)
    try:
        options = read_options(os.environ)
        # Only the part that sets the password may know it.
        os.environ.pop("FENCELINE_ADMIN_PASSWORD", None)
        return run_stack(options)
    except SandboxError as error:
        print(f"make up: {error}", file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
