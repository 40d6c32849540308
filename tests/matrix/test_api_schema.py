"""Proves by schemathesis, on a whole stack, that the API answers as its description says, whatever is asked,
to a caller of each role; `make test-matrix` fetches it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deployment import Stack
from tests.seeds import SEED

pytestmark = [pytest.mark.kafka, pytest.mark.matrix]
CONFIG = Path(__file__).with_name("schemathesis.toml")
#: What could send to addresses that chance has made; `tests.api.test_refusals` asks them with chosen bodies.
SENDING = ("dashboard_api_channels_add_channel", "dashboard_api_channels_change_channel")
CALLERS = (("viewer",), ("operator",), ("admin",), ("operator", "--cluster", "sandbox"))


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack with the demo's topics, ids and groups."""
    with Stack(tmp_path_factory.mktemp("schema"), DEMO="lite") as stack:
        yield stack


@pytest.mark.parametrize("caller", CALLERS, ids="-".join)
def test_every_answer_is_as_described(stack: Stack, tmp_path: Path, caller: tuple[str, ...]) -> None:
    role, *limit = caller
    token = stack.manage("create_token", "-".join(caller), "--role", role, *limit)
    print(f"FENCELINE_SEED={SEED}")
    command = [sys.executable, "-m", "uv", "tool", "run", "--quiet", "--from", "schemathesis==4.*"]
    command += ["schemathesis", f"--config-file={CONFIG}", "run", f"{stack.url}/api/v1/openapi.json"]
    command += [f"--header=Authorization: Bearer {token}", f"--seed={SEED}"]
    command += ["--phases=examples,coverage,fuzzing", "--max-examples=20", "--no-color"]
    command += [f"--exclude-operation-id={operation}" for operation in SENDING]
    hooks = {"PYTHONPATH": str(CONFIG.parent), "SCHEMATHESIS_HOOKS": "schemathesis_hooks"}
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | hooks, capture_output=True, text=True, check=False
    )
    lines = [line[:400] for line in (done.stdout + done.stderr).splitlines()]
    assert done.returncode == 0, "\n".join(lines[-2_000:])
    assert "Traceback" not in stack.log()
