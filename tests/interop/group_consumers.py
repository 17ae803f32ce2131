"""Group consumers of several libraries behind one face, for use by one thread.

A consumer subscribes, tells which partitions it was given and had to give back, and reads in short
waits. Offsets are committed when it is told to; how it joins says what it does by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import aiokafka
import aiokafka.abc
import confluent_kafka
import kafka
from aiokafka.coordinator.assignors import range as aiokafka_range
from aiokafka.coordinator.assignors.roundrobin import (
    RoundRobinPartitionAssignor as AiokafkaRoundRobin,
)
from aiokafka.coordinator.assignors.sticky.sticky_assignor import (
    StickyPartitionAssignor as AiokafkaSticky,
)
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tests.interop.own_consumer import OwnConsumer
from tests.interop.waiting import wait_until

POLL_S = 0.05
#: kafka-python can lose the outcome of a join that takes longer than it is waited for.
KAFKA_PYTHON_POLL_S = 1.0
CALL_S = 20.0
HEARTBEAT_MS = 100
LIBRARIES = ("confluent", "kafka-python", "aiokafka")

T = TypeVar("T")


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int


class Seen(NamedTuple):
    """A record that was read."""

    place: Place
    offset: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Joining:
    """How to take part in a group."""

    library: str
    bootstrap: str
    group: str
    #: Librdkafka takes one that begins with ``^`` for a regular expression.
    topics: tuple[str, ...]
    strategy: str = "range"
    instance_id: str | None = None
    session_timeout_ms: int = 20_000
    reset: str = "earliest"
    auto_commit_ms: int | None = None
    #: Whether it commits what it has read before it gives partitions back.
    commits_when_revoked: bool = False
    #: ``consumer`` is the newer protocol; only librdkafka and this project's client have it.
    protocol: str = "classic"
    #: The assignor of the broker to ask for, in the newer protocol.
    remote_assignor: str | None = None
    committed_only: bool = False


class NoOffset(Exception):
    """There is no committed offset, and the consumer was told not to choose one."""


class Watcher(Protocol):
    """Who wants to know about partitions that come and go."""

    def on_assigned(self, places: set[Place]) -> None:
        """These were given, in addition to the others."""

    def on_revoked(self, places: set[Place]) -> None:
        """These are given back; offsets can still be committed."""

    def on_lost(self, places: set[Place]) -> None:
        """These belong to somebody else by now."""


class Unconcerned:
    """A watcher that does nothing."""

    def on_assigned(self, places: set[Place]) -> None:
        pass

    def on_revoked(self, places: set[Place]) -> None:
        pass

    def on_lost(self, places: set[Place]) -> None:
        pass


class GroupConsumer(Protocol):
    """What each of them can do."""

    def poll(self) -> list[Seen]:
        """Return what is there, after a short wait if there is nothing."""

    def assignment(self) -> set[Place]:
        """Return what it may read."""

    def commit(self, offsets: Mapping[Place, int] | None = None) -> None:
        """Commit these, or all that was read, and wait for the answer."""

    def commit_async(self, report: Callable[[object], None]) -> None:
        """Commit all that was read; report the error, or None, during some later poll."""

    def committed(self, place: Place) -> int | None:
        """Ask for the group's offset."""

    def position(self, place: Place) -> int:
        """Return the offset that will be read next."""

    def seek(self, place: Place, offset: int) -> None:
        """Go on reading there."""

    def pause(self, places: Iterable[Place]) -> None:
        """Stop reading there, but stay a member."""

    def resume(self, places: Iterable[Place]) -> None:
        """Read there again."""

    def close(self) -> None:
        """Leave the group, or just go if it is a static member."""


class ConfluentConsumer:
    """confluent-kafka: librdkafka.

    It checks where it is whenever it hears of a leader epoch. If metadata come a second time
    meanwhile, it compares the answer with where it is by then, and goes back to what was the log's
    end when it asked (2.16; any broker). So here a record counts once per assignment.
    """

    def __init__(self, joining: Joining, watcher: Watcher) -> None:
        config: dict[str, Any] = {
            "bootstrap.servers": joining.bootstrap,
            "group.id": joining.group,
            "group.protocol": joining.protocol,
            "auto.offset.reset": "error" if joining.reset == "none" else joining.reset,
            "enable.auto.commit": joining.auto_commit_ms is not None,
            "isolation.level": "read_committed" if joining.committed_only else "read_uncommitted",
            "fetch.wait.max.ms": 50,
            "retry.backoff.ms": 20,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "topic.metadata.refresh.interval.ms": 500,
            "log_level": 0,
            "on_commit": self._on_commit,
        }
        if joining.protocol == "classic":
            config["partition.assignment.strategy"] = joining.strategy
            config["session.timeout.ms"] = joining.session_timeout_ms
            config["heartbeat.interval.ms"] = HEARTBEAT_MS
        elif joining.remote_assignor is not None:
            config["group.remote.assignor"] = joining.remote_assignor
        if joining.instance_id is not None:
            config["group.instance.id"] = joining.instance_id
        if joining.auto_commit_ms is not None:
            config["auto.commit.interval.ms"] = joining.auto_commit_ms
        self._reports: list[Callable[[object], None]] = []
        self._watcher = watcher
        self._commits_when_revoked = joining.commits_when_revoked
        #: The offset after the last record, of partitions that were read since they were given.
        self._read_to: dict[Place, int] = {}
        self.consumer = confluent_kafka.Consumer(config)
        self.consumer.subscribe(
            list(joining.topics),
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=lambda _, parts: watcher.on_lost(_places(parts)),
        )

    def _on_assign(self, _: object, partitions: Iterable[Any]) -> None:
        places = _places(partitions)
        for place in places:
            self._read_to.pop(place, None)
        self._watcher.on_assigned(places)

    def _on_revoke(self, _: object, partitions: Iterable[Any]) -> None:
        try:
            if self._commits_when_revoked:
                self.commit()
        finally:
            self._watcher.on_revoked(_places(partitions))

    def _on_commit(self, error: object, _: object) -> None:
        if self._reports:
            self._reports.pop(0)(error)

    def poll(self) -> list[Seen]:
        found = []
        message = self.consumer.poll(POLL_S)
        while message is not None:
            error = message.error()
            if error is not None:
                if error.code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET:
                    raise NoOffset(error)
                if error.fatal() or not _is_passing(error):
                    raise confluent_kafka.KafkaException(error)
            else:
                place = Place(message.topic() or "", message.partition() or 0)
                offset = message.offset() or 0
                if offset >= self._read_to.get(place, 0):
                    self._read_to[place] = offset + 1
                    found.append(Seen(place, offset, message.value() or b""))
            message = self.consumer.poll(0)
        return found

    def assignment(self) -> set[Place]:
        return _places(self.consumer.assignment())

    def commit(self, offsets: Mapping[Place, int] | None = None) -> None:
        wait_until(lambda: self._try_to_commit(offsets))

    def _try_to_commit(self, offsets: Mapping[Place, int] | None) -> bool:
        try:
            if offsets is None:
                self.consumer.commit(asynchronous=False)
            else:
                self.consumer.commit(offsets=_confluent_offsets(offsets), asynchronous=False)
        except confluent_kafka.KafkaException as error:
            code = error.args[0].code()
            if code == confluent_kafka.KafkaError.STALE_MEMBER_EPOCH:
                # Of the newer protocol: the answer to a heartbeat, with the next epoch, is still
                # on its way. The library leaves the second attempt to its user.
                return False
            if code != confluent_kafka.KafkaError._NO_OFFSET:
                raise
        return True

    def commit_async(self, report: Callable[[object], None]) -> None:
        self._reports.append(report)
        self.consumer.commit(asynchronous=True)

    def committed(self, place: Place) -> int | None:
        (found,) = self.consumer.committed([confluent_kafka.TopicPartition(*place)], CALL_S)
        return None if found.offset < 0 else int(found.offset)

    def position(self, place: Place) -> int:
        (found,) = self.consumer.position([confluent_kafka.TopicPartition(*place)])
        return int(found.offset)

    def seek(self, place: Place, offset: int) -> None:
        self._read_to.pop(place, None)
        self.consumer.seek(confluent_kafka.TopicPartition(*place, offset))

    def pause(self, places: Iterable[Place]) -> None:
        self.consumer.pause([confluent_kafka.TopicPartition(*place) for place in places])

    def resume(self, places: Iterable[Place]) -> None:
        self.consumer.resume([confluent_kafka.TopicPartition(*place) for place in places])

    def close(self) -> None:
        self.consumer.close()


def _is_passing(error: Any) -> bool:
    """Tell whether the library goes on by itself."""
    passing = confluent_kafka.KafkaError
    return error.retriable() or error.code() in (
        passing._ALL_BROKERS_DOWN,
        passing._TRANSPORT,
        passing.REBALANCE_IN_PROGRESS,
        passing.UNKNOWN_TOPIC_OR_PART,
    )


def _confluent_offsets(offsets: Mapping[Place, int]) -> list[Any]:
    return [confluent_kafka.TopicPartition(*place, offset) for place, offset in offsets.items()]


def _places(partitions: Iterable[Any]) -> set[Place]:
    return {Place(each.topic, each.partition) for each in partitions}


class KafkaPythonConsumer:
    """kafka-python."""

    STRATEGIES: Mapping[str, Any] = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }

    def __init__(self, joining: Joining, watcher: Watcher) -> None:
        assert joining.protocol == "classic"
        # Its listeners run on a thread of the library, where nothing can be committed: only what
        # commits by itself does so before partitions are given back.
        auto_commit_ms = joining.auto_commit_ms
        if joining.commits_when_revoked and auto_commit_ms is None:
            auto_commit_ms = 1_000_000
        self.consumer = kafka.KafkaConsumer(
            bootstrap_servers=joining.bootstrap,
            group_id=joining.group,
            group_instance_id=joining.instance_id,
            auto_offset_reset=joining.reset,
            enable_auto_commit=auto_commit_ms is not None,
            auto_commit_interval_ms=auto_commit_ms or 5_000,
            partition_assignment_strategy=[self.STRATEGIES[joining.strategy]],
            session_timeout_ms=joining.session_timeout_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            isolation_level="read_committed" if joining.committed_only else "read_uncommitted",
            fetch_max_wait_ms=50,
            retry_backoff_ms=20,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=100,
        )

        class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned: Any) -> None:
                watcher.on_assigned(_places(assigned))

            def on_partitions_revoked(self, revoked: Any) -> None:
                watcher.on_revoked(_places(revoked))

            def on_partitions_lost(self, lost: Any) -> None:
                watcher.on_lost(_places(lost))

        self.consumer.subscribe(topics=joining.topics, listener=Listener())

    def poll(self) -> list[Seen]:
        try:
            found = self.consumer.poll(int(KAFKA_PYTHON_POLL_S * 1000))
        except kafka.errors.NoOffsetForPartitionError as error:
            raise NoOffset from error
        except kafka.errors.KafkaConnectionError:
            # It tries again by itself.
            return []
        return _seen(found)

    def assignment(self) -> set[Place]:
        return _places(self.consumer.assignment())

    def commit(self, offsets: Mapping[Place, int] | None = None) -> None:
        self.consumer.commit(_kafka_offsets(offsets), timeout_ms=CALL_S * 1000)

    def commit_async(self, report: Callable[[object], None]) -> None:
        def done(_: object, response: object) -> None:
            report(response if isinstance(response, Exception) else None)

        self.consumer.commit_async(callback=done)

    def committed(self, place: Place) -> int | None:
        found: int | None = self.consumer.committed(kafka.TopicPartition(*place))
        return found

    def position(self, place: Place) -> int:
        return int(self.consumer.position(kafka.TopicPartition(*place)))

    def seek(self, place: Place, offset: int) -> None:
        self.consumer.seek(kafka.TopicPartition(*place), offset)

    def pause(self, places: Iterable[Place]) -> None:
        self.consumer.pause(*(kafka.TopicPartition(*place) for place in places))

    def resume(self, places: Iterable[Place]) -> None:
        self.consumer.resume(*(kafka.TopicPartition(*place) for place in places))

    def close(self) -> None:
        self.consumer.close(timeout_ms=CALL_S * 1000)


def _seen(found: Mapping[Any, Iterable[Any]]) -> list[Seen]:
    return [
        Seen(Place(part.topic, part.partition), record.offset, record.value)
        for part, records in found.items()
        for record in records
    ]


def _kafka_offsets(offsets: Mapping[Place, int] | None) -> Any:
    if offsets is None:
        return None
    return {
        kafka.TopicPartition(*place): kafka.OffsetAndMetadata(offset, "", -1)
        for place, offset in offsets.items()
    }


class AiokafkaConsumer:
    """aiokafka, whose loop runs only while it is being asked."""

    STRATEGIES: Mapping[str, Any] = {
        "range": aiokafka_range.RangePartitionAssignor,
        "roundrobin": AiokafkaRoundRobin,
        "sticky": AiokafkaSticky,
    }

    def __init__(self, joining: Joining, watcher: Watcher) -> None:
        assert joining.protocol == "classic"
        self._runner = asyncio.Runner()
        self._commits: set[asyncio.Task[None]] = set()

        async def commit_when_revoked() -> None:
            await self.consumer.commit()

        class Listener(aiokafka.abc.ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned: Any) -> None:
                watcher.on_assigned(_places(assigned))

            async def on_partitions_revoked(self, revoked: Any) -> None:
                try:
                    if joining.commits_when_revoked and revoked:
                        await commit_when_revoked()
                finally:
                    watcher.on_revoked(_places(revoked))

        async def start() -> Any:
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=joining.bootstrap,
                group_id=joining.group,
                group_instance_id=joining.instance_id,
                auto_offset_reset=joining.reset,
                enable_auto_commit=joining.auto_commit_ms is not None,
                auto_commit_interval_ms=joining.auto_commit_ms or 5_000,
                partition_assignment_strategy=(self.STRATEGIES[joining.strategy],),
                session_timeout_ms=joining.session_timeout_ms,
                heartbeat_interval_ms=HEARTBEAT_MS,
                isolation_level="read_committed" if joining.committed_only else "read_uncommitted",
                fetch_max_wait_ms=50,
                retry_backoff_ms=20,
            )
            consumer.subscribe(joining.topics, listener=Listener())
            await consumer.start()
            return consumer

        self.consumer = self._run(start())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def poll(self) -> list[Seen]:
        try:
            return _seen(self._run(self.consumer.getmany(timeout_ms=int(POLL_S * 1000))))
        except aiokafka.errors.NoOffsetForPartitionError as error:
            raise NoOffset from error

    def assignment(self) -> set[Place]:
        return _places(self.consumer.assignment())

    def commit(self, offsets: Mapping[Place, int] | None = None) -> None:
        if offsets is None:
            self._run(self.consumer.commit())
        else:
            self._run(
                self.consumer.commit(
                    {aiokafka.TopicPartition(*place): offset for place, offset in offsets.items()}
                )
            )

    def commit_async(self, report: Callable[[object], None]) -> None:
        async def commit() -> None:
            await self.consumer.commit()

        def done(task: asyncio.Task[None]) -> None:
            self._commits.discard(task)
            report(task.exception())

        task = self._runner.get_loop().create_task(commit())
        self._commits.add(task)
        task.add_done_callback(done)

    def committed(self, place: Place) -> int | None:
        found: int | None = self._run(self.consumer.committed(aiokafka.TopicPartition(*place)))
        return found

    def position(self, place: Place) -> int:
        return int(self._run(self.consumer.position(aiokafka.TopicPartition(*place))))

    def seek(self, place: Place, offset: int) -> None:
        self.consumer.seek(aiokafka.TopicPartition(*place), offset)

    def pause(self, places: Iterable[Place]) -> None:
        async def pause() -> None:
            self.consumer.pause(*(aiokafka.TopicPartition(*place) for place in places))

        self._run(pause())

    def resume(self, places: Iterable[Place]) -> None:
        async def resume() -> None:
            self.consumer.resume(*(aiokafka.TopicPartition(*place) for place in places))

        self._run(resume())

    def close(self) -> None:
        try:
            self._run(self._stop())
        finally:
            # Cancels what the library has left behind, such as a connection that is being made.
            self._runner.close()

    async def _stop(self) -> None:
        """Stop within bounds: without a broker it would go on trying, in all tests to come."""
        stopping = asyncio.ensure_future(self.consumer.stop())
        await asyncio.wait({stopping}, timeout=CALL_S)
        if not stopping.done():
            raise TimeoutError("aiokafka's consumer does not stop")
        await stopping


def joined(joining: Joining, watcher: Watcher | None = None) -> GroupConsumer:
    """Return a consumer that has subscribed; polling makes it join."""
    kinds: Mapping[str, Callable[[Joining, Watcher], GroupConsumer]] = {
        "confluent": ConfluentConsumer,
        "kafka-python": KafkaPythonConsumer,
        "aiokafka": AiokafkaConsumer,
        "dohle": OwnConsumer,
    }
    return kinds[joining.library](joining, watcher or Unconcerned())
