"""A stack of small real processes, for the supervisor's tests: `python parts.py FOLDER PORT SCENARIO`."""

import os
import sys
from pathlib import Path

from sandbox import SandboxError, folder
from sandbox.ports import require_free
from sandbox.processes import print_line
from sandbox.supervisor import Part, Supervisor
from tests.waiting import port_answers

#: Serves a port, and has a child in a session of its own, as daemons do.
SERVER = """
import http.server, os, subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("serving", flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), http.server.BaseHTTPRequestHandler).serve_forever()
"""
#: Starts a child in its own session and group, then waits.
PARENT = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("waiting", flush=True)
time.sleep(600)
"""
#: Will not be told: only SIGKILL ends it.
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
while True: time.sleep(600)
"""
FAILING = "import sys; print('no such database', flush=True); sys.exit(3)"


def parts(port: int, scenario: str) -> list[Part]:
    """Return the parts of a scenario."""
    python = [sys.executable, "-c"]
    server = Part("server", [*python, SERVER, str(port)], ready=lambda: port_answers(port), stage=0)
    if scenario == "setup-fails":
        return [server, Part("prepare", [*python, FAILING], once=True)]
    if scenario == "never-ready":
        return [server, Part("broken", [*python, FAILING], ready=lambda: False, after=("server",))]
    if scenario == "no-program":
        return [Part("missing", ["/nonexistent/program"])]
    if scenario == "slow":
        return [server, Part("broken", [*python, PARENT], ready=lambda: False)]
    if scenario == "crash-loop":
        return [server, Part("broken", [*python, FAILING], ready=lambda: False, essential=False)]
    return [
        server,
        Part("worker", [*python, PARENT], after=("server",), ready_line="waiting", stage=2),
        Part("stubborn", [*python, STUBBORN], after=("server",), ready_line="deaf", stage=2, stop_within_s=1),
    ]


def main(data: Path, port: int, scenario: str) -> int:
    """Run a scenario as `make up` runs the stack."""
    try:
        folder.make_folder(data, needed_bytes=0)
        with folder.lock_folder(data, print_line):
            require_free(port, "the server", "choose another")
            stack = data / "stack.json"
            supervisor = Supervisor(
                parts(port, scenario),
                data / "logs",
                on_ready=lambda waiting: print_line("all is ready"),
                on_change=lambda running: folder.write_stack(data, {}, running),
                remove_after=[stack],
                parent=os.getppid() if scenario == "with-parent" else 0,
            )
            supervisor.run()
        if supervisor.failure:
            raise SandboxError(supervisor.failure)
    except SandboxError as error:
        print(f"parts: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
