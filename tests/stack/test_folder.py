"""The data folder: every way in which it cannot be used is one line, and its secrets stay private."""

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox import SandboxError, folder
from sandbox.processes import ROTATE_BYTES, PartLog


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a file system of one megabyte."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("needs root to mount a small disk")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_it_names_a_full_disk(small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(b"x" * 1_000_000)
    with pytest.raises(SandboxError, match=r"data: the disk is full: free some space and start again"):
        folder.make_folder(small_disk / "data")


def test_it_names_an_almost_full_disk(small_disk: Path) -> None:
    with pytest.raises(SandboxError, match=r"almost full \(1 MB free, 300 needed\)"):
        folder.make_folder(small_disk / "data")


def test_a_part_outlives_a_full_disk(small_disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (small_disk / "filler").write_bytes(b"x" * 1_040_000)
    log = PartLog("web", small_disk)
    for _ in range(3):
        log.write("x" * 8000)
    assert capsys.readouterr().out.count("web.log: No space left on device") == 1
    (small_disk / "filler").unlink()
    log.write("again")
    assert (small_disk / "web.log").read_text().endswith("again\n")


def test_it_names_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file is in the way")
    with pytest.raises(
        SandboxError, match=r"data: (Not a directory|File exists): make it writable or choose"
    ):
        folder.make_folder(tmp_path / "data")


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Be an ordinary user for a while: root may write everywhere."""
    user = os.geteuid()
    os.seteuid(65534 if user == 0 else user)
    try:
        yield
    finally:
        os.seteuid(user)


def test_it_names_an_unwritable_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with (
        ordinary_user(),
        pytest.raises(SandboxError, match=r"Permission denied: make it writable or choose another folder"),
    ):
        folder.make_folder(tmp_path / "data")


def test_it_names_a_read_only_file_system() -> None:
    with pytest.raises(SandboxError, match=r"/proc/data: .*: make it writable or choose another folder"):
        folder.make_folder(Path("/proc/data"))


def test_files_that_an_older_stack_left_readable_are_closed_and_no_others(tmp_path: Path) -> None:
    for name in ("fenceline.db", "kafka/data/orders-0/0.log", "logs/web.log", "holiday.jpg", "beat.dat"):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        path.chmod(0o644)
    (tmp_path / "data").chmod(0o755)
    (tmp_path / "data" / "kafka").chmod(0o755)
    folder.make_folder(tmp_path / "data", needed_bytes=0)
    folder.tighten_modes(tmp_path / "data")
    everything = [tmp_path / "data", *(tmp_path / "data").rglob("*")]
    assert [path.name for path in everything if path.stat().st_mode & 0o077] == ["holiday.jpg"]


def test_a_folder_shared_with_other_users_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with pytest.raises(
        SandboxError, match=r"shared: this folder is not yours alone: choose another with FENCELINE_DATA="
    ):
        folder.make_folder(shared)
    assert stat.S_IMODE(shared.stat().st_mode) == 0o1777


def test_it_makes_a_secret_once_for_its_owner_only(tmp_path: Path) -> None:
    first = folder.stored_secret(tmp_path, "admin_password")
    assert len(first) >= 20
    assert folder.stored_secret(tmp_path, "admin_password") == first
    assert folder.stored_secret(tmp_path, "ingest_token") != first
    assert stat.S_IMODE((tmp_path / "secrets" / "admin_password").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700


def test_it_keeps_its_ports_but_not_a_taken_one(tmp_path: Path) -> None:
    import socket

    first = folder.assign_ports(tmp_path, ("kafka", "redis"))
    assert folder.assign_ports(tmp_path, ("kafka", "redis")) == first
    # As a server binds: a connection that has ended may still keep the port for others.
    with socket.create_server(("127.0.0.1", first["kafka"])):
        again = folder.assign_ports(tmp_path, ("kafka", "redis"))
    assert again["redis"] == first["redis"]
    assert again["kafka"] != first["kafka"]


def test_it_describes_the_stack_privately(tmp_path: Path) -> None:
    folder.write_stack(tmp_path, {"url": "http://127.0.0.1:8000/"}, {"web": 42})
    path = tmp_path / "stack.json"
    expected = {"url": "http://127.0.0.1:8000/", "parts": [{"name": "web", "pid": 42}]}
    assert json.loads(path.read_text()) == expected
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["stack.json"]


def test_a_log_keeps_a_bounded_size_and_no_colours(tmp_path: Path) -> None:
    log = PartLog("web", tmp_path)
    (tmp_path / "web.log").write_bytes(b"x" * ROTATE_BYTES)
    with subprocess.Popen(["printf", r"\033[31mred\033[0m\n"], stdout=subprocess.PIPE) as process:
        assert process.stdout
        log.pump(process.stdout).join(10)
    assert (tmp_path / "web.log").read_text() == "red\n"
    assert (tmp_path / "web.log.1").stat().st_size == ROTATE_BYTES
