"""Apache Kafka itself: a node that is broker and controller, in a process of its own.

Its data lies in ``folder/data`` as that of a ``BrokerProcess`` does, so either can go on where the
other stopped.
"""

from __future__ import annotations

import random
import signal
import socket
import subprocess
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.interop.waiting import wait_until
from tests.jvm.jvm import QUICK, Jvm

START_DEADLINE_S = 60.0
STOP_DEADLINE_S = 60.0

#: Features that Kafka finalizes by itself and dohle does not have.
_NOT_OURS = ["eligible.leader.replicas.version", "share.version", "streams.version"]
#: Below those that Linux hands out by itself.
_PORTS = range(20_000, 32_000)
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


class ApacheKafka:
    """A node that keeps its data in ``folder``; it may be started again after its end."""

    def __init__(
        self, classpath: str, folder: Path, config: Mapping[str, str] | None = None
    ) -> None:
        self._classpath = classpath
        self._log_path = folder / "kafka.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.properties = folder / "server.properties"
        broker_port, controller_port = _free_ports(2)
        self.bootstrap = f"127.0.0.1:{broker_port}"
        controller = f"127.0.0.1:{controller_port}"
        values = {
            **_ONE_NODE,
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "controller.quorum.voters": f"1@{controller}",
            "log.dirs": str(folder / "data"),
            **(config or {}),
        }
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in values.items()))

    def format(self, jvm: Jvm, cluster_id: str = "oracle-of-the-tests-00") -> None:
        """Give the empty data directory its identity, and dohle's features."""
        levels = [option for feature in _NOT_OURS for option in ("--feature", f"{feature}=0")]
        done = jvm.run(
            *("kafka.tools.StorageTool", "format", "-t", cluster_id),
            *("-c", str(self.properties), *levels),
        )
        assert done.code == 0, done

    def start(self) -> Self:
        """Start and wait until it serves."""
        assert self._process is None
        with self._log_path.open("ab") as log:
            begin = log.tell()
            self._process = process = subprocess.Popen(
                ["java", *QUICK, "-cp", self._classpath, "kafka.Kafka", str(self.properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

        def is_started() -> bool:
            assert process.poll() is None, f"Apache Kafka ended:\n{self.log}"
            return _STARTED in self.log[begin:]

        wait_until(is_started, START_DEADLINE_S)
        return self

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
        return self._log_path.read_text(errors="replace")


def _free_ports(number: int) -> list[int]:
    """Return ports that are free, and that no connection will be given before they are bound."""
    return list(islice(filter(_is_free, random.sample(_PORTS, len(_PORTS))), number))


def _is_free(port: int) -> bool:
    with socket.socket() as candidate:
        try:
            candidate.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
