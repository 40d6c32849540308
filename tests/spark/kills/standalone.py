"""A standalone Spark cluster of two hosts, 127.0.0.1 and 127.0.0.2, each with one worker of one core.

Spark runs a copy of a task only on another host, and `local-cluster` has but one.
"""

import os
import signal
import subprocess
from pathlib import Path
from typing import Self

import pyspark

from sandbox.ports import HOST, free_port
from sandbox.processes import signal_all
from tests.spark.conftest import environment
from tests.spark.kills.driver_run import session
from tests.waiting import port_answers, wait_for

HOSTS = (HOST, "127.0.0.2")


class Standalone:
    """Such a cluster: `with Standalone(folder) as cluster`, and `cluster.url` is a driver's spark.master."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, free_port()
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        """What a driver calls its master."""
        return f"spark://{HOST}:{self._port}"

    def __enter__(self) -> Self:
        try:
            self._start("master.Master", "--host", HOST, "--port", str(self._port), "--webui-port", "0")
            wait_for(lambda: port_answers(self._port), "the master answers", 120)
            for host in HOSTS:
                limits = ("--cores", "1", "--memory", "600m", "--webui-port", "0")
                work = ("--work-dir", str(self._folder / f"work-{host}"))
                self._start("worker.Worker", "--host", host, *limits, *work, self.url)
            wait_for(lambda: self._registered() == len(HOSTS), "its workers are there", 120)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        for process in self._processes:
            signal_all(session(process.pid), signal.SIGKILL)
            process.wait(30)

    def _start(self, kind: str, *arguments: str) -> None:
        home = Path(pyspark.__file__).parent
        around = environment(self._folder) | {"SPARK_HOME": str(home), "SPARK_NO_DAEMONIZE": "1"}
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments]
        with (self._folder / "cluster.log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    command, stdout=log, stderr=log, start_new_session=True, env={**os.environ, **around}
                )
            )

    def _registered(self) -> int:
        return (self._folder / "cluster.log").read_text().count("Registering worker")
