"""A fetch that waits is answered as one that is made at that moment: when, and with what.

It looks at nothing but the partition that has changed, and by positions; so it is held to a fetch
that looks at all of them, and reads them anew, whatever happens to the logs in between.
"""

from __future__ import annotations

from asyncio import Future
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.core.ids import TopicName
from dohle.core.steps import finish
from dohle.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from dohle.replication.fetch_sessions import FetchContext, SessionPartition
from dohle.server.handlers.fetch import handle_fetch
from dohle.server.net.connection import Connection
from dohle.server.net.handler import RequestContext
from dohle.server.node import Node
from dohle.server.partitions.fetch_reader import FetchReader
from dohle.server.partitions.partitions import Partition
from dohle.storage.producers.state import AppendOrigin
from tests.server.partitions.fetching import on_node
from tests.server.wire import create_topic
from tests.storage.logs import NOW_MS, batch, marker

PARTITIONS = 3
VERSION = 12
WAIT_MS = 3_600_000
PRODUCERS = 2
_NOBODY = cast("Connection", SimpleNamespace(listener="PLAINTEXT"))


class ThoroughReader(FetchReader):
    """One that compares no offsets to save itself the reading."""

    def _at_end(self, part: SessionPartition) -> Partition | None:
        return None


@dataclass
class Fetch:
    """One that waits."""

    request: FetchRequest
    answer: Future[FetchResponse]


class Place:
    """A topic of a node, and the fetches that wait at it."""

    def __init__(self, node: Node, topic: str) -> None:
        self._node, self._topic = node, topic
        found = node.broker.partitions.of_topic(TopicName(topic))
        self._partitions: list[Partition] = [found[index] for index in range(PARTITIONS)]
        self._sequences: dict[tuple[int, int], int] = {}
        self._waiting: list[Fetch] = []
        self.looked = self.answered = 0

    # What happens

    def happen(self, what: str, index: int, number: int) -> None:
        """Let something happen to a partition, and have it told."""
        partition = self._partitions[index]
        getattr(self, f"_{what}")(partition, number)
        self._node.broker.recheck(partition.key)
        self.check(f"{what} {number} at {index}")

    def _append(self, partition: Partition, number: int) -> None:
        built = batch([NOW_MS] * (1 + number % 3), value=bytes(number * 40))
        partition.log.append_as_leader(built, partition.leader_epoch)

    def _append_committed(self, partition: Partition, number: int) -> None:
        self._append(partition, number)
        self._commit(partition, 1_000)

    def _commit(self, partition: Partition, number: int) -> None:
        log = partition.log
        log.update_high_watermark(log.high_watermark + number)

    def _transact(self, partition: Partition, number: int) -> None:
        pid, log = 1 + number % PRODUCERS, partition.log
        sequence = self._sequences.get((partition.key.partition, pid), 0)
        guard = log.producer_state.start_transaction_verification(pid, sequence, 0, False, NOW_MS)
        built = batch(
            [NOW_MS],
            value=bytes(number * 40),
            pid=pid,
            epoch=0,
            sequence=sequence,
            transactional=True,
        )
        log.append_as_leader(built, partition.leader_epoch, verification_guard=guard)
        self._sequences[partition.key.partition, pid] = sequence + 1

    def _end(self, partition: Partition, number: int) -> None:
        """Commit or abort a transaction, if there is one."""
        pid, log = 1 + number % PRODUCERS, partition.log
        if (partition.key.partition, pid) in self._sequences:
            log.append_as_leader(
                marker(pid, commit=number % 3 > 0),
                partition.leader_epoch,
                origin=AppendOrigin.COORDINATOR,
                transaction_version=0,
            )
            self._commit(partition, 1_000)

    def _roll(self, partition: Partition, number: int) -> None:
        partition.log.roll()

    def _truncate(self, partition: Partition, number: int) -> None:
        log = partition.log
        if not self._sequences:
            # (What producers have sent would have to be sent again.)
            log.truncate_to(max(log.log_start_offset, log.log_end_offset - number))

    def _delete(self, partition: Partition, number: int) -> None:
        log = partition.log
        log.delete_records(min(log.log_start_offset + number, log.high_watermark))

    def _elect(self, partition: Partition, number: int) -> None:
        epoch, partition_epoch = partition.leader_epoch + 1, partition.image.partition_epoch + 1_000
        partition.follow(
            replace(partition.image, leader_epoch=epoch, partition_epoch=partition_epoch)
        )

    # Fetches

    def fetch(self, behind: list[int], limits: tuple[int, int, int], isolation: int) -> None:
        """Fetch from so many records before the ends."""
        partition_max_bytes, max_bytes, min_bytes = limits
        asked = tuple(
            FetchPartition(
                partition=index,
                fetch_offset=max(
                    partition.log.log_start_offset, partition.log.high_watermark - behind[index]
                ),
                partition_max_bytes=partition_max_bytes,
                current_leader_epoch=partition.leader_epoch if behind[index] % 2 else -1,
            )
            for index, partition in enumerate(self._partitions)
        )
        request = FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation,
            topics=(FetchTopic(topic=TopicName(self._topic), partitions=asked),),
        )
        context = RequestContext(_NOBODY, VERSION, "test")
        answer = handle_fetch(self._node.broker, context, request)
        if isinstance(answer, Future):
            self._waiting.append(Fetch(request, answer))
        else:
            assert answer == self._response_now(request)

    def _anew(self, request: FetchRequest) -> tuple[FetchContext, ThoroughReader]:
        broker = self._node.broker
        context = finish(broker.fetch_sessions.open(request, VERSION, broker.topic_name, 0))
        assert type(context) is FetchContext
        return context, ThoroughReader(broker, request, VERSION, context, _NOBODY.listener)

    def _response_now(self, request: FetchRequest) -> FetchResponse:
        _, reader = self._anew(request)
        finish(reader.read())
        return finish(reader.response())

    def _is_due(self, request: FetchRequest) -> bool:
        """Tell what a fetch that is made now finds when it looks at all partitions."""
        context, reader = self._anew(request)
        size = 0
        for part in context.partitions:
            found = reader.readable_bytes(part)
            if found is None:
                return True
            size += found
        return size >= reader.min_bytes

    def check(self, what: str, *, is_expired: bool = False) -> None:
        """Hold those that wait, and those that were answered just now, to fetches made now."""
        left = []
        for fetch in self._waiting:
            self.looked += 1
            if fetch.answer.done():
                self.answered += 1
                assert is_expired or self._is_due(fetch.request), what
                assert fetch.answer.result() == self._response_now(fetch.request), what
            else:
                assert not self._is_due(fetch.request), what
                left.append(fetch)
        self._waiting = left

    def expire(self) -> None:
        """Let the time of all be up: they are answered with what there is."""
        purgatory = self._node.broker.purgatory
        for delayed in purgatory.expire(2**63):
            delayed.request.answer()
        assert all(fetch.answer.done() for fetch in self._waiting)
        self.check("the end", is_expired=True)
        assert purgatory.watched_count == purgatory.count == 0


EVENTS = st.tuples(
    st.sampled_from(
        [
            *("append_committed",) * 6,
            *("append", "append", "commit", "commit", "transact", "transact", "end", "end", "end"),
            *("roll", "truncate", "truncate", "delete", "elect"),
        ]
    ),
    st.integers(0, PARTITIONS - 1),
    st.integers(0, 5),
)
FETCHES = st.tuples(
    st.lists(st.sampled_from([0, 0, 0, 1, 2, 4]), min_size=PARTITIONS, max_size=PARTITIONS),
    st.tuples(
        st.sampled_from([1 << 20, 1 << 20, 1 << 20, 300, 100, 0]),
        st.sampled_from([1 << 20, 1 << 20, 400]),
        st.sampled_from([1, 70, 200, 600, 1_000, 2_000]),
    ),
    st.integers(0, 1),
)


def test_a_delayed_fetch_is_answered_as_one_that_is_made_then(tmp_path: Path) -> None:
    numbers = count()
    looked = answered = 0
    with on_node(tmp_path) as (runner, node, wire):

        async def scenario(
            steps: list[tuple[str, int, int] | tuple[list[int], tuple[int, int, int], int]],
        ) -> None:
            nonlocal looked, answered
            topic = f"t-{next(numbers)}"
            await create_topic(wire, topic, PARTITIONS, {"segment.bytes": str(1 << 20)})
            place = Place(node, topic)
            for first, second, third in steps:
                if isinstance(first, str):
                    assert isinstance(second, int)
                    place.happen(first, second, third)
                else:
                    assert not isinstance(second, int)
                    place.fetch(first, second, third)
            place.expire()
            looked, answered = looked + place.looked, answered + place.answered

        @settings(max_examples=80)
        @given(steps=st.lists(st.one_of(EVENTS, EVENTS, EVENTS, FETCHES), min_size=10, max_size=60))
        def check(
            steps: list[tuple[str, int, int] | tuple[list[int], tuple[int, int, int], int]],
        ) -> None:
            runner.run(scenario(steps))

        check()
    # Otherwise little was compared.
    assert looked > 3 * answered > 100
