"""Kafka's own clients in the background: a producer that never stops, and a consumer behind it."""

from __future__ import annotations

import subprocess
import threading

from dohle.core.ids import TopicName
from dohle.testing.checking.history import Delivery, History, Partition, Reading, SentRecord
from tests.interop.load import PARTITIONS
from tests.interop.waiting import wait_until
from tests.jvm.jvm import LOG_LEVELS, QUICK
from tests.mixed.nodes import DEADLINE_S


class JavaLoad:
    """``java/Traffic.java`` in a virtual machine of its own, and what it says that it saw.

    It writes and reads: it is both sides of ``Traffic``.
    """

    def __init__(self, classpath: str, bootstrap: str, topic: TopicName) -> None:
        self.topic = topic
        self.history = History()
        self.failures: list[str] = []
        self.acknowledged_count = 0
        self.written = dict.fromkeys(range(PARTITIONS), 0)
        self._sends: dict[tuple[int, bytes], SentRecord] = {}
        self._readings = [self._reading(index) for index in range(PARTITIONS)]
        program = ["java", *QUICK, *LOG_LEVELS, "-cp", classpath, "Traffic"]
        self._process = subprocess.Popen(
            [*program, bootstrap, topic, str(PARTITIONS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._thread = threading.Thread(target=self._listen)

    def _reading(self, index: int) -> Reading:
        return self.history.read_by("Java", Partition(self.topic, index))

    def start(self) -> None:
        """Wait until it has begun: the first record of each partition is acknowledged."""
        self._thread.start()
        self.await_more(PARTITIONS, DEADLINE_S)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._take(line)

    def _take(self, line: bytes) -> None:
        match line.split():
            case [b"send", index, number]:
                self._send(int(index), number)
            case [b"ack", index, number, offset]:
                self._sends.pop((int(index), number)).acknowledged(int(offset), 0)
                self.acknowledged_count += 1
            case [b"read", index, number, offset]:
                self._readings[int(index)].given(int(offset), number, 0)
            case _:
                self.failures.append(line.decode())

    def _send(self, index: int, number: bytes) -> None:
        where = Partition(self.topic, index)
        send = SentRecord("Java", where, number, delivery=Delivery.EXACTLY_ONCE)
        self._sends[index, number] = self.history.add(send)
        self.written[index] += 1

    def await_more(self, count: int, deadline_s: float) -> None:
        """Wait until so many more records have been acknowledged."""
        goal = self.acknowledged_count + count
        wait_until(lambda: self.acknowledged_count >= goal or self._has_ended, deadline_s)
        assert not self._has_ended, self.failures

    @property
    def _has_ended(self) -> bool:
        return self._process.poll() is not None

    def finish(self, ends: dict[int, int] | None = None) -> None:
        """Have all acknowledged and read, to these ends if they are told."""
        assert self._process.stdin is not None
        if not self._process.stdin.closed and not self._has_ended:
            self._process.stdin.write(b"stop\n")
            self._process.stdin.close()
        code = self._process.wait(DEADLINE_S)
        self._thread.join()
        assert code == 0, self.failures
        if ends is not None:
            lasts = {each.partition.number: each.records[-1][0] + 1 for each in self._readings}
            assert lasts == ends

    def stop(self) -> None:
        """Give up."""
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def records(self) -> dict[Partition, list[tuple[int, bytes]]]:
        """All that it has read."""
        return {reading.partition: reading.records for reading in self._readings}
