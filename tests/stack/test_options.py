"""What `make up` takes: every bad value is refused with its name and the remedy."""

from pathlib import Path

import pytest

from sandbox import SandboxError, options


def test_the_sandbox_runs_by_default() -> None:
    read = options.read_options({})
    assert (read.port, read.has_own_kafka, read.demo) == (8000, True, options.DemoSize.FULL)
    assert read.data == options.ROOT / ".data"
    assert (read.brokers, read.shards, read.redis_port) == (1, 1, 0)


def test_the_demo_runs_in_the_sandbox_alone() -> None:
    asked: tuple[dict[str, str], ...] = ({}, {"DEMO": "lite"}, {"DEMO": "0"}, {"BOOTSTRAP": "kafka:9092"})
    read = [options.read_options(each) for each in asked]
    assert [each.has_demo for each in read] == [True, True, False, False]
    assert [each.has_full_demo for each in read] == [True, False, False, False]


def test_three_brokers_and_several_shards_are_optional() -> None:
    read = options.read_options({"BROKERS": "3", "SHARDS": "4"})
    assert (read.brokers, read.shards) == (3, 4)


def test_a_real_kafka_is_accepted(tmp_path: Path) -> None:
    assert not options.read_options({"BOOTSTRAP": "kafka-1:9092,kafka-2:9092"}).has_own_kafka
    assert not options.read_options({"BOOTSTRAP": "[::1]:9092"}).has_own_kafka
    config = tmp_path / "fenceline.toml"
    config.write_text("")
    assert options.read_options({"CONFIG": str(config)}).config == str(config)


@pytest.mark.parametrize(
    ("environment", "line"),
    [
        ({"PORT": "http"}, "PORT=http: give a number from 1 to 65535"),
        ({"PORT": "70000"}, "PORT=70000: give a number from 1 to 65535"),
        ({"SHARDS": "0"}, "SHARDS=0: give a number from 1 to 50"),
        ({"REDIS_PORT": "0"}, "REDIS_PORT=0: give a number from 1 to 65535"),
        (
            {"REDIS_PORT": "6379", "REDIS_URL": "redis://h"},
            "REDIS_PORT is for the embedded Redis: leave it out with REDIS_URL",
        ),
        ({"SMALL": "yes"}, "SMALL=yes: give 1, or leave it out"),
        ({"SMALL": "1", "SHARDS": "2"}, "SMALL=1 has one worker for all, and SHARDS asks for more: give one"),
        ({"DEMO": "no"}, "DEMO=no: give 1, quiet, lite or 0"),
        ({"BROKERS": "2"}, "BROKERS=2: give 1 or 3"),
        ({"BROKERS": "3", "BOOTSTRAP": "a:1"}, "BROKERS is for the sandbox's own Kafka: leave it out"),
        ({"BOOTSTRAP": "kafka"}, "BOOTSTRAP=kafka: give host:port, several with commas between"),
        ({"BOOTSTRAP": "a:1,,b:2"}, "BOOTSTRAP=a:1,,b:2: give host:port"),
        ({"CONFIG": "/no/such.toml"}, "CONFIG=/no/such.toml: no such file"),
        ({"CONFIG": __file__, "BOOTSTRAP": "a:1"}, "BOOTSTRAP and CONFIG both name clusters: give one"),
    ],
)
def test_a_bad_value_is_refused(environment: dict[str, str], line: str) -> None:
    with pytest.raises(SandboxError) as refused:
        options.read_options(environment)
    assert line in str(refused.value)
