"""A broker whose coordinators do not dawdle, and records for its readers."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.interop.process import BrokerProcess
from tests.interop.waiting import wait_until
from tests.interop.wire import Wire, batch_of

QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.session.timeout.ms": "3000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "offsets.topic.num.partitions": "10",
    "transaction.state.log.num.partitions": "10",
}
#: Few enough that a reader keeps up on a busy machine.
FEED_PAUSE_S = 0.005

_numbers = count(1)


def fresh(what: str) -> str:
    """Return a name that nobody has used."""
    return f"{what}-{next(_numbers)}"


@contextmanager
def serving(folder: Path) -> Iterator[BrokerProcess]:
    """Run a broker, and see at the end that nothing unexpected has happened to it."""
    with BrokerProcess(folder, QUICK) as broker:
        yield broker
        assert broker.stop() == 0
        assert broker.failures == []


def new_topic(bootstrap: str, partitions: int = 1, name: str | None = None) -> str:
    """Create a topic."""
    name = name or fresh("topic")
    with Wire(bootstrap) as wire:
        wire.create_topic(name, partitions)
    return name


def write(bootstrap: str, topic: str, values: Sequence[bytes], partition: int = 0) -> None:
    """Write records, one after the other."""
    with Wire(bootstrap) as wire:
        assert wire.produce(topic, batch_of(*values), partition=partition).error_code == 0


class Feed:
    """Writes records to all partitions of a topic, in a thread, until it is stopped."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.written: list[bytes] = []
        self._bootstrap, self._topic, self._partitions = bootstrap, topic, partitions
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with Wire(self._bootstrap) as wire:
            while not self._stopping.wait(FEED_PAUSE_S):
                number = len(self.written)
                value = b"%s %d" % (self._topic.encode(), number)
                answer = wire.produce(
                    self._topic, batch_of(value), partition=number % self._partitions
                )
                assert answer.error_code == 0
                self.written.append(value)

    def await_more(self, records: int) -> None:
        """Wait until so many more have been written."""
        goal = len(self.written) + records
        wait_until(lambda: len(self.written) >= goal)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join()
