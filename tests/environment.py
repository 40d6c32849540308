"""What every test stands on: settings that never touch `.data`. A pytest plugin, named in pyproject.toml."""

import gc
import os
import sys
import tempfile

import pytest
from _pytest import runner
from hypothesis import settings

# Timings are never asserted: a busy machine makes no test fail. What the gate draws is fixed (`tests.seeds`).
settings.register_profile("fenceline", deadline=None, derandomize="FENCELINE_SEED" not in os.environ)
settings.load_profile("fenceline")

# Where bytecode is not kept (as in many containers) each process compiles Django and all else again: a start
# of one takes twice the time, and tests start hundreds.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

_data = tempfile.TemporaryDirectory(prefix="fenceline-tests-")
# Settings are read when Django starts, so the environment comes before it.
os.environ["SECRET_KEY"] = "only for tests"
os.environ["FENCELINE_DATA"] = _data.name
os.environ.pop("FENCELINE_CONFIG", None)
os.environ.setdefault("DATABASE_URL", "")
# Tests' JVMs live for seconds or a few minutes and are small: the second compiler costs them half as much
# again in CPU, and so do the threads of a collector that is made for many cores. Counters that nobody reads
# are a fifth of what an idle broker takes.
os.environ["JAVA_TOOL_OPTIONS"] = " ".join(
    ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:ReservedCodeCacheSize=128m", "-XX:-UsePerfData")
)


def pytest_sessionstart() -> None:
    """Let nobody look for garbage among modules and tests while they come: a fifth of collection."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave what is there for the whole run, modules and tests, out of every later collection of garbage.

    It is most of what a worker holds, and to walk it again and again took a sixth of the time of tests/web.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


def _protocol_with_room(item: pytest.Item, nextitem: pytest.Item | None) -> object:
    return runner.pytest_runtest_protocol(item, nextitem)


# CPython keeps frames in chunks of 16 KB. At the depth that pytest calls a test in, its calls pass the end of
# one again and again, and each maps a new chunk and unmaps it: 600 times a page, a third of the time of
# tests/web. A frame that asks for more than 128 KB gets a chunk of 256 KB, in which the others have room.
_protocol_with_room.__code__ = _protocol_with_room.__code__.replace(co_stacksize=17_000)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> object:
    """Run a test as pytest does, with room for its frames."""
    return _protocol_with_room(item, nextitem)
