"""A whole stack for tests and benchmarks: `make up`'s own program, in a folder and on ports of its own."""

import json
import os
import secrets
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from http.cookiejar import CookieJar
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode
from urllib.request import OpenerDirector

from sandbox.options import ROOT
from sandbox.ports import free_port
from tests import databases
from tests.waiting import wait_for

PASSWORD = "correct horse battery staple"


class Stack:
    """`python -m sandbox.up` with the given variables of `make up`, ready when entered, gone when left."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.data = folder / "data"
        self.url = f"http://127.0.0.1:{free_port()}"
        port = self.url.rpartition(":")[2]
        #: Those of `make up`; a change is for the next start.
        self.variables = {
            "PORT": port,
            "FENCELINE_DATA": str(self.data),
            "FENCELINE_ADMIN_PASSWORD": PASSWORD,
            "DEMO": "lite",
        }
        self.variables |= {"DATABASE_URL": databases.for_stack(folder), "ALLOWED_HOSTS": ""} | variables
        self._token = ""
        self._operator: OpenerDirector | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Start it and wait until it says that it is up."""
        self.data.mkdir(parents=True, exist_ok=True)
        self._log = (self.data / "up.log").open("w")
        command = [sys.executable, "-m", "sandbox.up"]
        environment = {name: value for name, value in os.environ.items() if name != "MAKELEVEL"}
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment | self.variables, stdout=self._log, stderr=subprocess.STDOUT
        )
        try:
            wait_for(self._is_up, "the stack is up", 150)
        except AssertionError as late:
            self.stop()
            raise AssertionError(f"{late}\n{self.log()[-5000:]}") from None

    def _is_up(self) -> bool:
        assert self.process.poll() is None, f"make up ended with {self.process.returncode}:\n{self.log()}"
        return (self.data / "stack.json").exists()

    def stop(self) -> None:
        """Stop it as Ctrl-C does."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._log.close()

    def log(self) -> str:
        """Return everything that it and its parts have printed."""
        files = [self.data / "up.log", *sorted((self.data / "logs").glob("*.log"))]
        return "".join(file.read_text() for file in files if file.exists())

    def pid(self, part: str) -> int:
        """Return the process id of a part, once it runs: it may just be restarting."""
        return int(wait_for(lambda: self.pids().get(part), f"{part} runs", 60))

    def pids(self) -> dict[str, int]:
        """Return the process id of each part that runs."""
        return {each["name"]: each["pid"] for each in self.described()["parts"]}

    def described(self) -> Any:
        """Return what stack.json says."""
        return json.loads((self.data / "stack.json").read_text())

    def kill(self, part: str) -> None:
        """Kill a part as the kernel would when memory is short."""
        os.kill(self.pid(part), signal.SIGKILL)

    def manage(self, *arguments: str) -> str:
        """Run a management command inside the stack's environment and return what it printed."""
        environment = os.environ | self.environment()
        command = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def environment(self) -> Mapping[str, str]:
        """Return what a Django process needs to belong to this stack."""
        described = self.described()
        config = self.variables.get("CONFIG") or str(self.data / "fenceline.toml")
        return {
            "DATABASE_URL": described["database"],
            "REDIS_URL": described["redis"],
            "FENCELINE_DATA": described["data_dir"],
            "FENCELINE_CONFIG": config,
            "SECRET_KEY": (self.data / "secrets" / "secret_key").read_text().strip(),
        }

    def api(self, path: str) -> Any:
        """Return the JSON that `/api/v1/PATH` answers; raises OSError while the web part is away."""
        if not self._token:
            self._token = self.manage("create_token", f"tests-{secrets.token_hex(4)}")
        request = urllib.request.Request(f"{self.url}/api/v1/{path}")
        request.add_header("Authorization", f"Bearer {self._token}")
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def page(self, path: str) -> str:
        """Return a page as a signed-in operator gets it."""
        if self._operator is None:
            self._operator = self._signed_in()
        return str(self._operator.open(f"{self.url}{path}").read().decode())

    def submit(self, page: str, path: str, **fields: str) -> None:
        """Send a form of a page as a signed-in operator."""
        csrf = _csrf_token(self.page(page))
        form = urlencode({**fields, "csrfmiddlewaretoken": csrf}).encode()
        assert self._operator
        self._operator.open(urllib.request.Request(f"{self.url}{path}", form, {"Referer": self.url}))

    def _signed_in(self) -> OpenerDirector:
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        csrf = _csrf_token(opener.open(f"{self.url}/login/").read().decode())
        fields = {"username": "admin", "password": PASSWORD, "csrfmiddlewaretoken": csrf}
        opener.open(
            urllib.request.Request(f"{self.url}/login/", urlencode(fields).encode(), {"Referer": self.url})
        )
        return opener


def _csrf_token(page: str) -> str:
    return page.split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
