"""Rewrites the assertions of all tests before workers begin, where these share the machine. A pytest plugin.

pytest keeps what it has rewritten, but workers begin at the same moment: in a fresh clone each of them would
rewrite all, which takes 4 CPU seconds of each.
"""

import multiprocessing
import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

TESTS = Path(__file__).parent


def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Keep what pytest makes of each test file, with every core."""
    files = [*TESTS.rglob("conftest.py"), *TESTS.rglob("test_*.py")]
    cores = os.cpu_count() or 1
    # A fork has the configuration, by which files are rewritten.
    fork = multiprocessing.get_context("fork")
    helpers = [fork.Process(target=_rewrite, args=(config, files[n::cores])) for n in range(cores)]
    for helper in helpers:
        helper.start()
    for helper in helpers:
        helper.join()


def _rewrite(config: pytest.Config, files: Iterable[Path]) -> None:
    state = config.stash[rewrite.assertstate_key]
    for file in files:
        folder = rewrite.get_cache_dir(file)
        kept = folder / (file.name.removesuffix(".py") + rewrite.PYC_TAIL)
        if rewrite.try_makedirs(folder) and rewrite._read_pyc(file, kept, state.trace) is None:
            source_hash, code = rewrite._rewrite_test(file, config)
            rewrite._write_pyc(state, code, source_hash, kept)
