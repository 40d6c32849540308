"""Proves the job `spark_pipeline/exactly_once.py`: arguments, the input of SQL, refusals in one line.

And the archive of `make spark-zip`: real spark-submit runs the job with it, far from the checkout.
"""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from sandbox import spark_zip
from sandbox.kafka import Broker
from sandbox.ports import free_port
from spark_pipeline.exactly_once import Stop, quieten_python, run_query
from spark_pipeline.exactly_once_arguments import BadArgument, parse_arguments
from tests.brokers import create_topics
from tests.cases import cases
from tests.spark.conftest import ROOT, environment, settings
from tests.spark.kills.killed_query import committed_records
from tests.spark.topic_records import read_messages
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

NEEDED = ["--bootstrap-servers", "broker:9092", "--from", "orders", "--to", "copy", "--checkpoint", "/tmp/c"]
ORDERS = [{"order": f"o-{number}", "quantity": number, "price": 2.5} for number in range(40)]


@pytest.fixture
def topics(kafka_42: Broker) -> tuple[str, str]:
    """An input topic with orders as JSON, and an output topic."""
    name = uuid.uuid4().hex[:8]
    create_topics(kafka_42.bootstrap, f"in-{name}", f"out-{name}", partitions=2)
    produce(kafka_42, f"in-{name}", [json.dumps(order).encode() for order in ORDERS])
    return f"in-{name}", f"out-{name}"


def produce(broker: Broker, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number, value in enumerate(values):
        producer.produce(topic, value, key=b"\xff%d" % number, headers={"n": str(number)})
    assert producer.flush(30) == 0


@pytest.fixture
def job(
    kafka_42: Broker, topics: tuple[str, str], spark: SparkSession, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., tuple[int, str]]:  # fmt: skip
    """Runs the job in this process to the end of its input: exit status and what it prints on stderr."""

    def play(*more: str, **instead: str) -> tuple[int, str]:
        named = {
            "bootstrap-servers": kafka_42.bootstrap,
            "from": topics[0],
            "to": topics[1],
            "checkpoint": str(tmp_path / "checkpoint"),
            **{name.replace("_", "-"): value for name, value in instead.items()},
        }
        given = [each for name, value in named.items() for each in (f"--{name}", value)]
        quieten_python()
        capsys.readouterr()
        status = run_query(spark, parse_arguments([*given, "--trigger", "available-now", *more]), Stop())
        return status, capsys.readouterr().err.strip()

    return play


@cases(
    ([], "--from, --to, --checkpoint"),
    (NEEDED[2:], "--bootstrap-servers is missing"),
    ([*NEEDED, "--to", "orders"], "would read what it writes"),
    ([*NEEDED, "--trigger", "now and then"], "neither available-now nor an interval"),
    ([*NEEDED, "--kafka", "linger.ms"], "no KEY=VALUE"),
    ([*NEEDED, "--kafka-file", "/nowhere"], "cannot be read: No such file"),
    ([*NEEDED, "--sql-file", "/nowhere"], "cannot be read: No such file"),
    ([*NEEDED, "--value-format", "json"], "--schema go together"),
    ([*NEEDED, "--value-format", "json", "--schema", "a INT"], "without --sql"),
    ([*NEEDED, "--transaction-timeout", "long"], "no time such as 15m"),
    ([*NEEDED, "--accept-loss", "all"], "no batch id"),
    ([*NEEDED, "--max-offsets-per-trigger", "0"], "no number above 0"),
    ([*NEEDED, "--fenceline-url", "http://here"], "needs an ingest token"),
    ([*NEEDED, "--sql", "SELECT 1", "--sql-file", "x"], "not allowed with"),
    ([*NEEDED, "--unheard-of"], "unrecognized arguments: --unheard-of"),
)
def test_a_wrong_argument_is_named(monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str) -> None:
    monkeypatch.delenv("FENCELINE_TOKEN", raising=False)
    with pytest.raises(BadArgument) as raised:
        parse_arguments(arguments)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_arguments_and_files_become_kafkas_options(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "# mine\nsecurity.protocol = SASL_SSL\nsasl.mechanism: PLAIN\nlinger.ms 5\nclient.id=a\\\n  b\n"
    )
    chosen = parse_arguments([*NEEDED, "--kafka-file", str(file), "--kafka", "kafka.linger.ms=20",
        "--accept-loss", "3",
                    "--accept-loss", "5", "--transaction-timeout", "15 minutes"])  # fmt: skip
    assert chosen.kafka_options() == {
        "kafka.bootstrap.servers": "broker:9092",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.linger.ms": "20",
        "kafka.client.id": "ab",
    }
    assert chosen.accept_loss == (3, 5)
    assert chosen.transaction_timeout_ms == 900_000
    assert chosen.name == chosen.prefix == "orders-to-copy"


def test_without_sql_records_are_copied_unchanged(
    job: Callable[..., tuple[int, str]], kafka_42: Broker, topics: tuple[str, str]
) -> None:
    assert job() == (0, "")
    assert raw(kafka_42, topics[1]) == raw(kafka_42, topics[0])
    assert job() == (0, ""), "a second run finds nothing new"
    assert raw(kafka_42, topics[1]) == raw(kafka_42, topics[0])


def test_sql_reads_the_fields_and_its_columns_become_json(
    job: Callable[..., tuple[int, str]], kafka_42: Broker, topics: tuple[str, str], tmp_path: Path
) -> None:
    sql = tmp_path / "total.sql"
    sql.write_text("SELECT order AS key, order, quantity * price AS total, kafka.offset AS at\n"
                   "FROM input WHERE quantity >= 10;\n")  # fmt: skip
    schema = "order STRING, quantity INT, price DOUBLE"
    assert job("--sql-file", str(sql), value_format="json", schema=schema) == (0, "")
    rows = {key: json.loads(value) for key, value in committed_records(kafka_42.bootstrap, topics[1])}
    assert {key: row["total"] for key, row in rows.items()} == {
        order["order"]: order["quantity"] * order["price"] for order in ORDERS if order["quantity"] >= 10
    }
    assert all(set(row) == {"order", "total", "at"} for row in rows.values())


@cases(
    ("SELEC value FROM input", "the SQL cannot run: [PARSE_SYNTAX_ERROR]"),
    ("SELECT price FROM input", "the SQL cannot run: [UNRESOLVED_COLUMN"),
    ("SELECT value FROM elsewhere", "the SQL cannot run: [TABLE_OR_VIEW_NOT_FOUND]"),
    ("SELECT 'one' AS value", "the SQL does not read the topic"),
    ("SELECT key FROM input", "no column `value`"),
    ("SELECT value, offset FROM input", "the sink knows no column offset"),
    ("SELECT value, count(*) AS key FROM input GROUP BY value", "Invalid streaming output mode: append"),
)
def test_unusable_sql_is_refused_in_one_line(
    job: Callable[..., tuple[int, str]], sql: str, said: str
) -> None:
    status, text = job("--sql", sql)
    assert (status, said in text, text.count("\n")) == (2, True, 0), text


def test_a_wrong_environment_is_refused_in_one_line(job: Callable[..., tuple[int, str]]) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    for status, said, instead in (
        (2, f"no broker answers at {nobody}", {"bootstrap_servers": nobody}),
        (2, "no topic nothing (--from)", {"from": "nothing"}),
        (2, "--fenceline-url, --fenceline-token: ", {"fenceline_url": "nowhere", "fenceline_token": "t"}),
        (2, "no topic nothing (--to)", {"to": "nothing"}),
        (2, "is no list of columns", {"value_format": "json", "schema": "a b c", "sql": "SELECT a"}),
    ):
        found, text = job(**instead)
        assert (found, said in text, text.count("\n")) == (status, True, 0), text


@cases(
    ("SELECT value, 99 AS partition FROM input", "a record for out-"),
    ("SELECT CAST(value AS INT) AS value FROM input", "[CAST_INVALID_INPUT] The value '{"),
)
def test_a_failed_task_is_reported_without_stack_traces(
    job: Callable[..., tuple[int, str]], sql: str, said: str
) -> None:
    status, text = job("--sql", sql)
    assert (status, said in text, text.count("\n")) == (1, True, 0), text


def test_the_archive_holds_four_packages_and_is_the_same_each_time(tmp_path: Path) -> None:
    for name in ("one.zip", "two.zip"):
        assert spark_zip.main([str(tmp_path / name)]) == 0
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    with ZipFile(tmp_path / "one.zip") as archive:
        packages = {name.split("/")[0] for name in archive.namelist()}
    assert packages == {"fenceline", "spark_listener", "spark_pipeline", "transaction_admin"}


class Submitted:
    """The job under real spark-submit, in a folder of its own: nothing of the checkout is on its path."""

    def __init__(self, folder: Path, arguments: list[str], *, connector: bool = True) -> None:
        folder.mkdir()
        self.log = folder / "log"
        script = folder / "exactly_once.py"
        script.write_bytes((ROOT / "spark_pipeline" / "exactly_once.py").read_bytes())
        spark_zip.make_zip(folder / "fenceline-spark.zip")
        conf = {
            name: value
            for name, value in settings(folder).items()
            if not name.startswith("spark.executorEnv")
        }
        if not connector:
            del conf["spark.jars"]
        given = [each for name, value in conf.items() for each in ("--conf", f"{name}={value}")]
        submit = Path(sys.executable).with_name("spark-submit")
        command = [str(submit), *given, "--py-files", "fenceline-spark.zip", script.name, *arguments]
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**variables, **environment(folder), "PYTHONSAFEPATH": ""},
            )

    def text(self) -> str:
        """Return all that it has printed."""
        return self.log.read_text()

    def ended(self, seconds: float = 180) -> int:
        """Wait for its end; return its status."""
        try:
            return self.process.wait(seconds)
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)


@pytest.mark.matrix
def test_spark_submit_runs_it_with_the_archive_until_sigterm(
    kafka_42: Broker, topics: tuple[str, str], tmp_path: Path
) -> None:
    """The JVM gets the signal, as under a container's init; every record is there once, before and after."""
    arguments = ["--bootstrap-servers", kafka_42.bootstrap, "--from", topics[0], "--to", topics[1],
                 "--checkpoint", str(tmp_path / "checkpoint"), "--max-offsets-per-trigger", "16",
                 "--sql", "SELECT json_tuple(value, 'order') AS key, value FROM input"]  # fmt: skip
    job = Submitted(tmp_path / "job", arguments)
    try:
        wait_for(
            lambda: (
                len(committed_records(kafka_42.bootstrap, topics[1])) == len(ORDERS) or job.process.poll()
            ),
            "every order is written",
            180,
        )
        job.process.terminate()
        assert job.ended() == 0, job.text()
    finally:
        if job.process.poll() is None:
            os.killpg(job.process.pid, signal.SIGKILL)
    keys = [key for key, _ in committed_records(kafka_42.bootstrap, topics[1])]
    assert sorted(keys) == sorted(str(order["order"]) for order in ORDERS)
    assert "Traceback" not in job.text()
    assert "Exception" not in job.text()


@pytest.mark.matrix
def test_spark_without_the_connector_names_the_package(
    kafka_42: Broker, topics: tuple[str, str], tmp_path: Path
) -> None:
    arguments = ["--bootstrap-servers", kafka_42.bootstrap, "--from", topics[0], "--to", topics[1],
                 "--checkpoint", str(tmp_path / "checkpoint")]  # fmt: skip
    job = Submitted(tmp_path / "job", arguments, connector=False)
    assert job.ended() == 2, job.text()
    assert "--packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0`" in job.text()
    assert "Traceback" not in job.text()


def raw(broker: Broker, topic: str) -> list[tuple[bytes, bytes, str]]:
    """Return key, value and headers of all records, sorted."""
    messages = read_messages(broker.bootstrap, topic)
    return sorted((each.key() or b"", each.value() or b"", repr(each.headers())) for each in messages)
