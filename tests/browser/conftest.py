"""A real server for a real browser: uvicorn, Redis and a SQLite file, in a temporary folder."""

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

from sandbox import redis
from sandbox.ports import free_port
from sandbox.scenes.player import REQUEST, ScenePlayer
from sandbox.up import WEB_OPTIONS
from tests.browser import page_checks
from tests.chromium import ARGUMENTS, executable
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
NAME, PASSWORD = "operator", "let me in, please"
CONFIG = "".join(f'[clusters.{name}]\n"bootstrap.servers" = "127.0.0.1:1"\n' for name in ("prod", "staging"))
_COLLECT_VIOLATIONS = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`));
"""


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark that says what is in the tables: the arguments of the writer's `reset`."""
    config.addinivalue_line("markers", "data(kind, ids): what the tables of the server have in them")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder."""
    for item in items:
        if item.nodeid.startswith("tests/browser/"):
            item.add_marker(pytest.mark.browser)


class Server:
    """The web part of a stack, under a base path if any, and a writer beside it."""

    #: A copy of the empty tables: the first server migrates, which takes 3 s of CPU.
    migrated: ClassVar[Path | None] = None

    def __init__(self, folder: Path, base: str = "", **environment: str) -> None:
        self._folder = folder
        self._redis, self.port = redis.Server(folder / "redis"), free_port()
        self.url = f"http://127.0.0.1:{self.port}{base}"
        #: Where the history job's output would be; nothing is there yet.
        self.reports = folder / "reports"
        history = f'[history]\nurl = "{self.reports.as_uri()}"\n'
        #: The same of the audit job.
        self.audits = folder / "audits"
        audit = f'[audit]\nurl = "{self.audits.as_uri()}"\n'
        flink = '[[checkpoints]]\nkind = "flink"\nroot = "s3://checkpoints"\ncluster = "prod"\n'
        flink += 'rest = "http://jm:8081"\n'
        (folder / "fenceline.toml").write_text(CONFIG + history + audit + flink)
        _play_a_scene(folder)
        self._environment = os.environ | {
            "DJANGO_SETTINGS_MODULE": "dashboard.settings",
            "SECRET_KEY": "only for tests",
            "DATABASE_URL": "",
            "FENCELINE_DATA": str(folder),
            "FENCELINE_CONFIG": str(folder / "fenceline.toml"),
            "REDIS_URL": self._redis.url,
            "FENCELINE_BASE_PATH": base,
            **environment,
        }
        self._processes: dict[str, subprocess.Popen[str]] = {}

    def start(self) -> None:
        """Start everything; returns when pages are served."""
        self._run("redis", self._redis.command())
        self._make_tables()
        self._run("writer", [sys.executable, "-m", "tests.browser.writer"])
        self.start_web()
        self("user", NAME, PASSWORD)

    def _make_tables(self) -> None:
        database = self._folder / "fenceline.db"
        if Server.migrated is not None and Server.migrated.exists():
            shutil.copy(Server.migrated, database)
            return
        migrate = [sys.executable, "manage.py", "migrate", "-v0"]
        subprocess.run(migrate, cwd=ROOT, env=self._environment, check=True)
        Server.migrated = Path(shutil.copy(database, self._folder / "migrated.db"))

    def start_web(self) -> None:
        """Start uvicorn; returns when it is ready."""
        options = ["--port", str(self.port), "--lifespan", "off", *WEB_OPTIONS]
        self._run("web", [sys.executable, "-m", "uvicorn", "dashboard.asgi:application", *options])
        wait_for(self._is_ready, "the web part is ready", 180)

    def kill_web(self) -> None:
        """Kill uvicorn as a crash does."""
        self._processes["web"].kill()
        self._processes["web"].wait()

    def __call__(self, command: str, *arguments: object, **options: object) -> None:
        """Have the writer do something; returns when it is committed and rung for."""
        writer = self._processes["writer"]
        assert writer.stdin
        assert writer.stdout
        writer.stdin.write(json.dumps([command, arguments, options]) + "\n")
        writer.stdin.flush()
        assert writer.stdout.readline() == "done\n", f"the writer failed at {command}"

    def stop(self) -> None:
        """End every process that was started."""
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()

    def _run(self, name: str, command: list[str]) -> None:
        log = (self._folder / f"{name}.log").open("a")
        pipe = subprocess.PIPE if name == "writer" else subprocess.DEVNULL
        out = subprocess.PIPE if name == "writer" else log
        self._processes[name] = subprocess.Popen(
            command, cwd=ROOT, env=self._environment, stdin=pipe, stdout=out, stderr=log, text=True
        )

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def _play_a_scene(folder: Path) -> None:
    """Offer the scenes of a sandbox; one was played, which has failed because no stack runs here."""
    (folder / REQUEST).write_text(json.dumps({"scene": "zombie", "by": NAME}))
    assert ScenePlayer(folder, 1, demo=True).play_requested()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server, signed up for and empty."""
    running = Server(tmp_path_factory.mktemp("browser"))
    try:
        running.start()
        yield running
    finally:
        running.stop()


@pytest.fixture(autouse=True)
def data(request: pytest.FixtureRequest) -> None:
    """Fill the tables as the nearest mark says."""
    if (mark := request.node.get_closest_marker("data")) is not None:
        request.getfixturevalue("server")("reset", *mark.args)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Chromium without a window.

    Of a package and not of the session: Playwright keeps an event loop in this thread, and Django refuses
    its database to whoever runs in one, so no other folder's tests may come while it lasts.
    """
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable(), args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="package")
def signed_in(server: Server, browser: Browser) -> dict[str, Any]:
    """The cookies of a sign-in through the form."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{server.url}/system")
    sign_in(page)
    page.wait_for_url(f"{server.url}/system")
    state = dict(context.storage_state())
    context.close()
    return state


def sign_in(page: Page, name: str = NAME, password: str = PASSWORD) -> None:
    """Fill in the form of the page, and send it."""
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()


def press_to(page: Page, keys: str, url: str | re.Pattern[str]) -> None:
    """Press keys, one after the other, that lead to another page."""
    for key in keys.split():
        page.keyboard.press(key)
    page.wait_for_url(url)


Opener = Callable[..., Page]


#: What htmx logs of a request that was under way when the reader left the page.
_LEFT = ("htmx:afterRequest", "htmx:sendAbort")


def _is_fault(message: ConsoleMessage) -> bool:
    return message.type in ("error", "warning") and not message.text.startswith(_LEFT)


@pytest.fixture
def opened(server: Server, browser: Browser, signed_in: dict[str, Any]) -> Iterator[Opener]:
    """Open a page, signed in, in a context of its own."""
    with opening(server, browser, signed_in) as opener:
        yield opener


@contextmanager
def opening(server: Server, browser: Browser, signed_in: dict[str, Any]) -> Iterator[Opener]:
    """Open pages, signed in; fails in the end when any page broke the policy or logged an error.

    `faults=True` allows errors in the console, for tests that take the server away.
    """
    contexts: list[tuple[BrowserContext, list[str]]] = []

    def open_page(path: str, *, faults: bool = False, **options: Any) -> Page:
        context = browser.new_context(storage_state=signed_in, base_url=server.url, **options)  # type: ignore[arg-type]
        context.add_init_script(_COLLECT_VIOLATIONS)
        problems: list[str] = []
        contexts.append((context, problems))
        page = context.new_page()
        if not faults:
            page.on("console", lambda message: _is_fault(message) and problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(path)
        return page

    yield open_page
    found: list[str] = []
    for context, problems in contexts:
        found += problems
        for page in context.pages:
            found += page.evaluate("window.violations")
        context.close()
    assert not found


@pytest.fixture
def live(opened: Opener) -> Opener:
    """Open a page and wait until its socket is up."""

    def open_live(path: str, **options: Any) -> Page:
        page = opened(path, **options)
        page.locator('#live[data-socket="up"]').wait_for()
        return page

    return open_live


Examiner = Callable[..., dict[str, list[str]]]


def _is_of_matrix(request: pytest.FixtureRequest) -> bool:
    return bool(request.node.get_closest_marker("matrix"))


@pytest.fixture
def looks(request: pytest.FixtureRequest) -> page_checks.Looks:
    """Every width and both schemes where the test is of the matrix, few of them in the gate."""
    return page_checks.ALL_LOOKS if _is_of_matrix(request) else page_checks.GATE_LOOKS


@pytest.fixture
def problems_of_pages(request: pytest.FixtureRequest, looks: page_checks.Looks) -> Examiner:
    """Load paths and examine them; `further` are other states of these pages, for the matrix alone."""

    def examine(
        page: Page, paths: Mapping[str, str], further: Mapping[str, str] | None = None, **more: Any
    ) -> dict[str, list[str]]:
        wanted = {**paths, **(further or {})} if _is_of_matrix(request) else paths
        return page_checks.problems_of_pages(page, wanted, looks, **more)

    return examine
