"""The two servers: each a new process with an empty data directory and the same configs.

Apache Kafka runs with the options that its own scripts give it (kafka-server-start, and
kafka-run-class, which it calls): G1, a heap of 1 GB, a log of garbage collections, JMX. dohle runs
as ``dohle start``. Both have their own defaults but for ``SAME``, and log at their usual level.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.jvm.apache_kafka import ApacheKafka
from tests.jvm.jvm import Jvm
from tests.ports import free_port

from bench.processes import Measured, Watched, folder
from bench.raw_client import api_versions_frame, call, connect
from bench.versus.figures import DOHLE, KAFKA

#: A member of a new group should not wait three seconds for others; topics of the warm-up should
#: not fill the disk for a minute after their end.
SAME = {"group.initial.rebalance.delay.ms": "0", "log.segment.delete.delay.ms": "1000"}

#: What kafka-run-class gives every program.
PERFORMANCE_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
_JMX_OPTIONS = (
    "-Dcom.sun.management.jmxremote=true",
    "-Dcom.sun.management.jmxremote.authenticate=false",
    "-Dcom.sun.management.jmxremote.ssl=false",
)
_HEAP_OPTIONS = ("-Xmx1G", "-Xms1G")
_START_S_MAX = 180
_STOP_S_MAX = 60
_RETRY_S = 0.002


class Server(Measured, Watched):
    """A server under test; it may be started again after its end."""

    def __init__(self, name: str, command: Sequence[str], address: str, folder: Path) -> None:
        self.name = name
        self.address = address
        #: The log directory.
        self.data = folder / "data"
        #: From exec to the first ApiVersions answer.
        self.start_s = 0.0
        self._command = command
        self._log = folder / "server.log"

    @property
    def processes(self) -> Mapping[str, Measured]:
        return {self.name: self}

    def spawn(self) -> None:
        """Start the process, without waiting for an answer."""
        # Python compiles its modules once, as Java programs come compiled.
        environment = {
            key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"
        }
        with self._log.open("ab") as log:
            self._begun = time.perf_counter()
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )

    def await_answer(self) -> None:
        """Wait for the answer to a first request."""
        deadline = time.monotonic() + _START_S_MAX
        request = api_versions_frame()
        while True:
            with suppress(OSError), connect(self.address) as sock:
                call(sock, request)
                self.start_s = time.perf_counter() - self._begun
                return
            if self._process.poll() is not None or time.monotonic() > deadline:
                log = self._log.read_text(errors="replace")
                raise RuntimeError(f"{self.name} does not serve:\n{log[-5000:]}")
            time.sleep(_RETRY_S)

    @property
    def pss_mb(self) -> float:
        """Its memory, with what it shares with other processes in proportion."""
        return self._memory_mb("smaps_rollup", "Pss")

    @property
    def peak_rss_mb(self) -> float:
        """The most memory that it has ever had, and that the processes have it has started."""
        return self._memory_mb("status", "VmHWM")

    def stop(self) -> None:
        """End it at once, if it runs."""
        if hasattr(self, "_process"):
            self._process.kill()
            self._process.wait()

    def terminate(self) -> None:
        """Ask it to end."""
        self._process.terminate()

    def await_end(self) -> None:
        """Wait until it has ended."""
        self._process.wait(_STOP_S_MAX)


@contextmanager
def dohle(settings: Mapping[str, str], python: str = sys.executable) -> Iterator[Server]:
    """Run the dohle that this Python has."""
    with folder() as path:
        address = f"127.0.0.1:{free_port()}"
        command = [python, "-m", "dohle", "start"]
        command += ["--data", f"{path}/data", "--listener", address]
        for name, value in {**SAME, **settings}.items():
            command += ["-X", f"{name}={value}"]
        with _running(Server(DOHLE, command, address, Path(path))) as server:
            yield server


@contextmanager
def kafka(classpath: str, formatter: Jvm, settings: Mapping[str, str]) -> Iterator[Server]:
    """Run Apache Kafka, in a directory that was formatted as an operator has to."""
    with folder() as path:
        node = ApacheKafka(classpath, Path(path), {**SAME, **settings})
        node.format(formatter)
        command = kafka_command(classpath, Path(path), node.properties)
        with _running(Server(KAFKA, command, node.bootstrap, Path(path))) as server:
            yield server


def kafka_command(classpath: str, folder: Path, properties: Path) -> list[str]:
    """Return how Kafka's scripts start a node."""
    collections = f"-Xlog:gc*:file={folder}/gc.log:time,tags:filecount=10,filesize=100M"
    command = ["java", *_HEAP_OPTIONS, *PERFORMANCE_OPTIONS, collections, *_JMX_OPTIONS]
    return [*command, "-cp", classpath, "kafka.Kafka", str(properties)]


@contextmanager
def _running(server: Server) -> Iterator[Server]:
    try:
        server.spawn()
        server.await_answer()
        yield server
    finally:
        server.stop()
