"""Idempotent producers of several makers, each a process of its own, that write numbers.

A number goes to the partition that it says, and is sent once by its program: whatever comes twice,
late or never is a fault of the client or of the brokers. A process ends when its standard input
does, and tells by lines of JSON how far it is.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaTimeoutError as AioTimeoutError
from confluent_kafka import KafkaError, Message, Producer
from kafka import KafkaProducer
from kafka.errors import KafkaTimeoutError

#: So many numbers are sent together, and so long is the pause behind them: the machine has nodes to
#: run as well.
_BURST, _PAUSE_S = 4, 0.05
#: So many may be on their way.
_UNANSWERED_MAX = 400
#: A request to a node that is silent is given up, and records never in time.
_REQUEST_MS, _DELIVERY_MS = 4_000, 300_000
_AIOKAFKA_MS = 30_000
_FLUSH_S = 120.0
_ROOT = Path(__file__).parents[2]
#: How often a process tells how far it is, and how much of what has failed.
_TELL_S, _FAILURES_TOLD = 0.1, 20


class Feed(ABC):
    """What producers have in common: they go on until they are told to stop."""

    name = ""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self._partitions = partitions
        #: How many numbers were sent, from 0 on, and how many of them were acknowledged.
        self.sent = self.acknowledged = 0
        self.failures: list[str] = []
        self.stopping = threading.Event()

    @abstractmethod
    def run(self) -> None:
        """Send until it is time to stop, then wait until all is answered."""

    def next(self) -> Iterator[tuple[int, bytes]]:
        """Return some partitions and what to send there, and count that as sent."""
        for _ in range(_BURST):
            if self.sent - self.acknowledged - len(self.failures) >= _UNANSWERED_MAX:
                return
            yield self.sent % self._partitions, f"{self.name} {self.sent}".encode()
            self.sent += 1

    def answered(self, error: object) -> None:
        """Note what came of a number."""
        if error is None:
            self.acknowledged += 1
        else:
            self.failures.append(repr(error))

    def serve(self) -> None:
        """Be the process: tell how far it is, and stop when nobody listens any more."""
        threading.Thread(target=self._until_told, daemon=True).start()
        is_over = threading.Event()
        telling = threading.Thread(target=self._tell, args=(is_over,))
        telling.start()
        try:
            self.run()
        except Exception as error:
            self.failures.append(repr(error))
        finally:
            is_over.set()
            telling.join()

    def _until_told(self) -> None:
        sys.stdin.read()
        self.stopping.set()

    def _tell(self, is_over: threading.Event) -> None:
        is_last = False
        while not is_last:
            is_last = is_over.wait(_TELL_S)
            told = self.sent, self.acknowledged, self.failures[:_FAILURES_TOLD]
            sys.stdout.write(json.dumps(told) + "\n")
            sys.stdout.flush()


class OfLibrdkafka(Feed):
    """A producer of confluent-kafka."""

    name = "librdkafka"

    def run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "socket.timeout.ms": _REQUEST_MS,
                "message.timeout.ms": _DELIVERY_MS,
                "topic.metadata.refresh.interval.ms": 1000,
                "log_level": 0,
            }
        )
        while not self.stopping.is_set():
            for partition, value in self.next():
                producer.produce(self.topic, value, partition=partition, on_delivery=self._told)
            producer.poll(_PAUSE_S)
        left = producer.flush(_FLUSH_S)
        assert not left, f"{left} records are not answered"

    def _told(self, error: KafkaError | None, _: Message) -> None:
        self.answered(error)


class OfAiokafka(Feed):
    """A producer of aiokafka."""

    name = "aiokafka"

    def run(self) -> None:
        asyncio.run(self._produce())

    async def _produce(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            enable_idempotence=True,
            # So long records may wait for a partition without a leader, too: it fails them then.
            request_timeout_ms=_AIOKAFKA_MS,
            metadata_max_age_ms=1000,
        )
        await _started(producer.start)
        try:
            while not self.stopping.is_set():
                for partition, value in self.next():
                    await self._send(producer, partition, value)
                await asyncio.sleep(_PAUSE_S)
            async with asyncio.timeout(_FLUSH_S):
                await producer.flush()
        finally:
            await producer.stop()

    async def _send(self, producer: AIOKafkaProducer, partition: int, value: bytes) -> None:
        while True:
            try:
                future = await producer.send(self.topic, value, partition=partition)
            except AioTimeoutError:
                # There was no room for it in all that time, so it was not sent.
                continue
            future.add_done_callback(lambda done: self.answered(done.exception()))
            return


class OfKafkaPython(Feed):
    """A producer of kafka-python."""

    name = "kafka-python"

    def run(self) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap.split(","),
            enable_idempotence=True,
            request_timeout_ms=_REQUEST_MS,
            delivery_timeout_ms=_DELIVERY_MS,
            metadata_max_age_ms=1000,
            max_block_ms=60_000,
        )
        try:
            while not self.stopping.wait(_PAUSE_S):
                for partition, value in self.next():
                    self._send(producer, partition, value)
            producer.flush(_FLUSH_S)
        finally:
            producer.close(timeout=10)

    def _send(self, producer: KafkaProducer, partition: int, value: bytes) -> None:
        while True:
            try:
                future = producer.send(self.topic, value, partition=partition)
            except KafkaTimeoutError:
                # There were no metadata, or no room, in all that time, so it was not sent.
                continue
            future.add_callback(lambda _: self.answered(None))
            future.add_errback(self.answered)
            return


async def _started(start: Callable[[], Any]) -> None:
    async with asyncio.timeout(_FLUSH_S):
        await start()


MAKERS: dict[str, type[Feed]] = {
    each.name: each for each in (OfLibrdkafka, OfAiokafka, OfKafkaPython)
}


class FeedProcess:
    """The process of a producer, and the last that it has told."""

    def __init__(self, name: str, bootstrap: str, topic: str, partitions: int) -> None:
        self.name = name
        self.sent = self.acknowledged = 0
        self.failures: list[str] = []
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-W", "ignore", "-m", "tests.cluster.feeds"),
                *(name, bootstrap, topic, str(partitions)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=_ROOT,
        )
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # How many were sent comes first: it is never less than what is acknowledged.
            self.sent, self.acknowledged, self.failures = json.loads(line)

    def stop(self) -> None:
        """Have it come to its end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(2 * _FLUSH_S)
        self._listening.join()
        assert code == 0, f"{self.name} has ended with {code}"

    def close(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.wait()
        self._listening.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


@contextmanager
def feeding(bootstrap: str, topic: str, partitions: int) -> Iterator[list[FeedProcess]]:
    """Have producers of all makers write to a topic, and come to their end behind that."""
    with ExitStack() as stack:
        feeds = []
        for name in MAKERS:
            feeds.append(FeedProcess(name, bootstrap, topic, partitions))
            stack.callback(feeds[-1].close)
        yield feeds
        for feed in feeds:
            feed.stop()


if __name__ == "__main__":
    maker, servers, topic_name, count = sys.argv[1:]
    MAKERS[maker](servers, topic_name, int(count)).serve()
