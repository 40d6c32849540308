"""What the web part takes and how fast its API answers while strangers abuse it, beside the same at rest.

A whole stack without the demo. For ATTACK_S together: gzip bombs with an ingest token, clients that send a
header or a body byte by byte, and 20 at once who guess passwords, each kind from addresses of its own.
Meanwhile an operator signs in, and the API is asked one request after the other, as before the attack.
"""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import quantiles
from typing import Any
from urllib.parse import urlencode, urlsplit

from sandbox.options import ROOT
from tests.deployment import PASSWORD, Stack

ATTACK_S = 30
REQUESTS = 300
BOMBERS, SLOW, GUESSERS = 2, 60, 20
#: 58 kB that would be 30 million numbers.
BOMB = gzip.compress(b'{"events":[' + b"1," * 30_000_000 + b"1]}", 9)


def run() -> dict[str, Any]:
    """Return memory in MB, the 95th percentile of an API request in ms, and the answers that were given."""
    with tempfile.TemporaryDirectory() as folder, Stack(Path(folder), DEMO="0") as stack:
        stack.api("transactions?limit=50")
        _sign_in(stack.url, "127.0.0.1", "admin", PASSWORD)
        quiet, before = _p95_ms(stack), _memory_mb(stack.pid("web"), "VmRSS")
        token = (stack.data / "secrets" / "ingest_token").read_text().strip()
        command = [sys.executable, "-m", "benchmarks.abuse", stack.url, token]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as attack:
            assert attack.stdout
            attack.stdout.readline()
            loud = _p95_ms(stack)
            signed_in = _sign_in(stack.url, "127.0.0.1", "admin", PASSWORD)
            answers = json.loads(attack.stdout.readline())
        peak = _memory_mb(stack.pid("web"), "VmHWM")
    return {
        "web memory at rest, MB": round(before),
        "web memory at its highest beyond that, MB": round(peak - before),
        "API p95 at rest, ms": round(quiet, 1),
        "API p95 under attack, ms, and ratio": f"{loud:.1f}, {loud / quiet:.1f}",
        "the operator's sign-in under attack": signed_in,
        "answers to attackers": answers,
    }


class _Attack:
    """All attackers at work, until `end`."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token, self._over = url, token, threading.Event()
        self._answers: dict[str, int] = {}
        kinds = ((self._bomb, BOMBERS), (self._dawdle, SLOW), (self._guess, GUESSERS))
        self._threads = [
            threading.Thread(target=self._repeat, args=(kind, number))
            for kind, count in kinds
            for number in range(count)
        ]
        self._began = time.monotonic()
        for thread in self._threads:
            thread.start()

    def finish_attack(self) -> dict[str, int]:
        """Go on for the rest of ATTACK_S, stop, and return how often each answer came."""
        self._over.wait(max(0.0, ATTACK_S - (time.monotonic() - self._began)))
        self._over.set()
        for thread in self._threads:
            thread.join()
        return dict(sorted(self._answers.items()))

    def _repeat(self, kind: Callable[[int], str], number: int) -> None:
        while not self._over.is_set():
            answer = "closed"
            with suppress(OSError, http.client.HTTPException):
                answer = kind(number)
            name = f"{kind.__name__.strip('_')} {answer}"
            self._answers[name] = self._answers.get(name, 0) + 1

    def _bomb(self, number: int) -> str:
        link = _connect(self._url, "127.0.0.50")
        headers = {"Authorization": f"Bearer {self._token}", "Content-Encoding": "gzip"}
        link.request("POST", "/ingest/v1/progress", BOMB, headers | {"Content-Type": "application/json"})
        return str(link.getresponse().status)

    def _dawdle(self, number: int) -> str:
        """Send an odd client's header, an even one's body, a byte each half second."""
        head = "POST /login/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n"
        at_once, slowly = (head[:10], head[10:]) if number % 2 else (f"{head}\r\n", "x" * 1000)
        where = urlsplit(self._url)
        with socket.create_connection((where.hostname, where.port), 60, (f"127.0.1.{number}", 0)) as link:
            link.sendall(at_once.encode())
            for sign in slowly:
                if self._over.wait(0.5):
                    break
                link.sendall(sign.encode())
            return link.recv(20)[9:12].decode() or "closed"

    def _guess(self, number: int) -> str:
        return str(_sign_in(self._url, f"127.0.2.{number + 1}", "admin", "a guess, and wrong"))


def _connect(url: str, address: str) -> http.client.HTTPConnection:
    where = urlsplit(url)
    assert where.hostname
    return http.client.HTTPConnection(where.hostname, where.port, timeout=60, source_address=(address, 0))


def _sign_in(url: str, address: str, name: str, password: str) -> int:
    """Return the status of the answer to a sign-in: 302 lets in, 200 is a wrong password, 429 too many."""
    link = _connect(url, address)
    link.request("GET", "/login/")
    form = link.getresponse()
    cookie = (form.getheader("Set-Cookie") or "").partition(";")[0]
    token = form.read().decode().split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
    fields = urlencode({"username": name, "password": password, "csrfmiddlewaretoken": token})
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": cookie, "Referer": url}
    link.request("POST", "/login/", fields, headers)
    return link.getresponse().status


def _p95_ms(stack: Stack) -> float:
    """Return the 95th percentile of REQUESTS to a list of the API, one after the other."""
    times = []
    for _ in range(REQUESTS):
        began = time.perf_counter()
        stack.api("transactions?limit=50")
        times.append((time.perf_counter() - began) * 1_000)
    return quantiles(times, n=20)[-1]


def _memory_mb(pid: int, field: str) -> float:
    """Return what the kernel counts for a process: VmRSS is now, VmHWM the most there was."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1_024


if __name__ == "__main__":
    # A process of its own: what measures would else wait for the attackers' threads.
    attack = _Attack(*sys.argv[1:])
    print("begun", flush=True)
    print(json.dumps(attack.finish_attack()), flush=True)
