"""The set-up of .venv: what a machine lacks is one clear line, and an interrupted set-up resumes.

The real script runs in a small checkout in a path with blanks. Its lock file names uv alone, and a program
that only notes its environment stands for uv, so that nothing is fetched.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.options import ROOT
from tests.cases import cases

UV = """#!/bin/sh
[ "$1" = --version ] && { echo uv 1.2.3; exit; }
env >>"$(dirname "$0")/calls"
exit ${UV_FAILS:-0}
"""


class Checkout:
    """A checkout whose .venv has been made, and the environment of a user's shell."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "my checkout"
        (self.folder / "sandbox").mkdir(parents=True)
        shutil.copy(ROOT / "sandbox" / "bootstrap.sh", self.folder / "sandbox")
        (self.folder / "requirements.txt").write_text("uv==1.2.3 \\\n    --hash=sha256:0\n")
        (folder / "home").mkdir()
        self.environment = {"HOME": str(folder / "home"), "PATH": "/usr/bin:/bin", "PYTHON": sys.executable}

    def make_venv(self) -> None:
        """Make .venv of our own Python, quicker than a new one, and of what stands for uv."""
        (self.folder / ".venv" / "bin").mkdir(parents=True)
        self.program("python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        self.program("uv", UV)

    def program(self, name: str, text: str) -> None:
        """Write a program of .venv."""
        path = self.folder / ".venv" / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def run(self, **variables: str) -> tuple[int, str]:
        """Return the exit status and the last line on stderr."""
        done = subprocess.run(
            [str(self.folder / "sandbox" / "bootstrap.sh")], env=self.environment | variables,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.returncode, (done.stderr.splitlines() or [""])[-1]

    def calls(self) -> list[str]:
        """Return the environment of each call of uv, its lines one after the other."""
        return (self.folder / ".venv" / "bin" / "calls").read_text().splitlines()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_an_interrupted_set_up_resumes_and_then_does_nothing(checkout: Checkout) -> None:
    checkout.make_venv()
    status, line = checkout.run(UV_FAILS="2")
    assert (status, "run it again to go on where it stopped" in line) == (1, True)
    assert checkout.run() == (0, "")
    # Now neither the index, nor a cache, nor a Python to make it of is asked for.
    assert checkout.run(UV_FAILS="2", HOME="/nonexistent", PYTHON="/nonexistent") == (0, "")


def test_certificates_of_the_system_and_of_pip_are_trusted(checkout: Checkout, tmp_path: Path) -> None:
    checkout.make_venv()
    (tmp_path / "home" / ".config" / "pip").mkdir(parents=True)
    (tmp_path / "home" / ".config" / "pip" / "pip.conf").write_text("[global]\ncert = /company/ca.pem\n")
    assert checkout.run() == (0, "")
    assert {"UV_SYSTEM_CERTS=1", "SSL_CERT_FILE=/company/ca.pem"} <= set(checkout.calls())


@pytest.mark.matrix
def test_a_half_made_venv_is_made_again(checkout: Checkout) -> None:
    checkout.make_venv()
    checkout.program("python", '#!/bin/sh\n[ "$1" != -m ]\n')
    status, line = checkout.run(PIP_NO_INDEX="1")
    # The new one has a pip, and no uv: pip is asked for it and may not fetch.
    expected = (1, "make: cannot install uv: check the network and the package index, then run it again")
    assert (status, line) == expected
    assert len(list((checkout.folder / ".venv" / "lib").glob("*/site-packages/pip"))) == 1


def test_an_unsuitable_python_is_named(checkout: Checkout, tmp_path: Path) -> None:
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    wrong = f"make: PYTHON={old} is no Python 3.11 to 3.14 with venv and pip: name another, or leave it out"
    assert checkout.run(PYTHON=str(old)) == (1, wrong)


@pytest.mark.parametrize("minor", [10, 11, 12, 13, 14, 15])
def test_python_3_11_to_3_14_are_accepted(checkout: Checkout, tmp_path: Path, minor: int) -> None:
    """By a Python that claims its version; it makes nothing, which is the next line."""
    fake = tmp_path / "python"
    fake.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = -c ] && exec {sys.executable} -c "import sys; sys.version_info = (3, {minor}); $2"\n'
        "[ $1 = --version ] && exit\nexit 1\n"
    )
    fake.chmod(0o755)
    line = checkout.run(PYTHON=str(fake))[1]
    assert ("cannot make .venv" in line) is (11 <= minor <= 14)


def test_a_second_set_up_beside_the_first_is_refused_and_a_killed_one_is_not(checkout: Checkout) -> None:
    checkout.make_venv()
    lock = checkout.folder / ".venv.lock"
    lock.symlink_to(str(os.getpid()))
    status, line = checkout.run()
    assert status == 1
    assert f"another set-up runs in {checkout.folder} (process {os.getpid()})" in line
    gone = subprocess.Popen(["true"])
    gone.wait()
    lock.unlink()
    lock.symlink_to(str(gone.pid))
    assert checkout.run() == (0, "")
    assert not lock.is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: to become another user")
@cases(
    ("home", "where packages are kept: make it writable, or set HOME to a folder of yours"),
    ("my checkout", "make it writable, or clone into a folder of yours"),
)
def test_a_folder_that_may_not_be_written_is_named(
    checkout: Checkout, tmp_path: Path, closed: str, text: str
) -> None:
    for folder in (*tmp_path.parents[:3], tmp_path, tmp_path / "home", checkout.folder):
        if folder != Path("/tmp"):
            folder.chmod(0o755)
    os.chown({"home": checkout.folder, "my checkout": tmp_path / "home"}[closed], 65534, 65534)
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "sandbox/bootstrap.sh"]
    done = subprocess.run(
        command, cwd=checkout.folder, env=checkout.environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith(f"make: cannot write to {tmp_path / closed}")
    assert text in done.stderr


def test_a_disk_without_room_is_named(checkout: Checkout, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    df = tmp_path / "bin" / "df"
    df.write_text("#!/bin/sh\necho header\necho /dev/disk 1000000 900000 102400 90% /\n")
    df.chmod(0o755)
    status, line = checkout.run(PATH=f"{tmp_path / 'bin'}:/usr/bin:/bin")
    full = "the disk is almost full (100 MB free, 2000 needed): free some and run it again"
    assert (status, line) == (1, f"make: {checkout.folder}: {full}")
