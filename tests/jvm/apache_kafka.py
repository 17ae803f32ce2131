"""Apache Kafka itself, in a process of its own; by default a node that is broker and controller.

Its data lies in ``folder/data`` as that of a ``BrokerProcess`` does, so either can go on where the
other stopped.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.interop.waiting import wait_until
from tests.jvm.jvm import QUICK, Jvm
from tests.ports import free_ports

START_DEADLINE_S = 60.0
STOP_DEADLINE_S = 60.0

#: Features that Kafka finalizes by itself and dohle does not have.
_NOT_OURS = ["share.version", "streams.version"]
_STARTED = "Kafka Server started"
_ONE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


def format_storage(jvm: Jvm, properties: Path, cluster_id: str, *options: str) -> None:
    """Give the data directories of a node their identity, and dohle's features."""
    levels = [option for feature in _NOT_OURS for option in ("--feature", f"{feature}=0")]
    format_as_kafka_does(jvm, properties, cluster_id, *levels, *options)


def format_as_kafka_does(jvm: Jvm, properties: Path, cluster_id: str, *options: str) -> None:
    """Give the data directories of a node their identity, and the features of Kafka's release."""
    done = jvm.run(
        *("kafka.tools.StorageTool", "format", "-t", cluster_id),
        *("-c", str(properties), *options),
    )
    assert done.code == 0, done


class KafkaProcess:
    """A node with a configuration of its own; it may be started again after its end."""

    def __init__(self, classpath: str, properties: Path, log: Path) -> None:
        self.properties = properties
        self._classpath = classpath
        self._log_path = log
        self._log_begin = 0
        self._process: subprocess.Popen[bytes] | None = None

    def spawn(self) -> None:
        """Start the process, without waiting for it to serve."""
        assert self._process is None
        with self._log_path.open("ab") as log:
            self._log_begin = log.tell()
            self._process = subprocess.Popen(
                ["java", *QUICK, "-cp", self._classpath, "kafka.Kafka", str(self.properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def await_start(self) -> None:
        """Wait until it serves."""
        process = self._process
        assert process is not None

        def is_started() -> bool:
            assert process.poll() is None, f"Apache Kafka ended:\n{self.log}"
            said = self._log_path.read_bytes()[self._log_begin :]
            return _STARTED.encode() in said

        wait_until(is_started, START_DEADLINE_S)

    def start(self) -> Self:
        """Start and wait until it serves."""
        self.spawn()
        self.await_start()
        return self

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended, by itself or by others."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """End it with -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to stop."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None
        process, self._process = self._process, None
        process.send_signal(number)
        try:
            process.wait(timeout=STOP_DEADLINE_S)
        finally:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self.kill()

    @property
    def log(self) -> str:
        """All that it has logged."""
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""


class ApacheKafka(KafkaProcess):
    """A node that keeps its data in ``folder``, alone in its cluster unless configured."""

    def __init__(
        self,
        classpath: str,
        folder: Path,
        config: Mapping[str, str] | None = None,
        *,
        standalone: bool = False,
    ) -> None:
        """``standalone`` has the quorum's voters in the metadata log (``kraft.version`` 1)."""
        super().__init__(classpath, folder / "server.properties", folder / "kafka.log")
        self._is_standalone = standalone
        broker_port, controller_port = free_ports(2)
        self.bootstrap = f"127.0.0.1:{broker_port}"
        self.controller = controller = f"127.0.0.1:{controller_port}"
        quorum = {"controller.quorum.voters": f"1@{controller}"}
        if standalone:
            quorum = {"controller.quorum.bootstrap.servers": controller}
        values = {
            **_ONE_NODE,
            **quorum,
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "log.dirs": str(folder / "data"),
            **(config or {}),
        }
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in values.items()))

    def format(
        self, jvm: Jvm, cluster_id: str = "oracle-of-the-tests-00", voters: str = "--standalone"
    ) -> None:
        """Give the empty data directory its identity, and dohle's features.

        ``voters`` says which voters the log begins with, if it has them.
        """
        format_storage(jvm, self.properties, cluster_id, *([voters] if self._is_standalone else []))
