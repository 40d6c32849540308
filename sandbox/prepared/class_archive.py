"""A JVM's archive of loaded classes (AppCDS), beside the jars: a broker then starts with half the CPU time.

An archive fits one JVM and one class path, both in its name. A JVM also checks this: it reports a mismatch in
its log and loads the jars as usual. An incomplete archive would abort the JVM (JDK 17), so each has a
checksum file.
"""

import fcntl
import hashlib
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from sandbox.errors import SandboxError
from sandbox.java import Java, Progress, file_sha256

#: Called with a working folder and JVM options; runs the program of the archive until its end.
Training = Callable[[Path, Sequence[str]], None]


def archive_options(
    name: str, folder: Path, java: Java, jars: Sequence[Path], train: Training, progress: Progress
) -> list[str]:
    """Return the JVM options for `folder`'s archive of `name`; empty if it cannot be made.

    The first call makes it in ten seconds of a JVM; concurrent calls wait. A damaged archive is made again.
    An empty file marks a JVM that makes no archives.
    """
    try:
        path = folder / f"{name}-{_fingerprint(java, jars)}.jsa"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_whole(path):
                progress(f"{name}: making its class archive, once")
                _make(path, train)
        return [f"-XX:SharedArchiveFile={path}"] if path.stat().st_size else []
    except (OSError, SandboxError) as error:
        progress(f"{name}: starts without a class archive: {error}")
        return []


def _make(path: Path, train: Training) -> None:
    with tempfile.TemporaryDirectory(prefix=f".{path.stem}-", dir=path.parent) as folder:
        made = Path(folder) / path.name
        train(Path(folder), ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", f"-XX:ArchiveClassesAtExit={made}"))
        if not made.exists():
            made.touch()
        _sum_of(path).write_text(file_sha256(made))
        made.replace(path)


def _is_whole(path: Path) -> bool:
    try:
        return file_sha256(path) == _sum_of(path).read_text()
    except FileNotFoundError:
        return False


def _sum_of(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _fingerprint(java: Java, jars: Sequence[Path]) -> str:
    # A jar that was fetched again has another timestamp: the JVM would refuse the archive.
    files = (f"{jar} {jar.stat().st_mtime_ns}" for jar in jars)
    text = "\n".join((str(java.home), java.build, *files))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
