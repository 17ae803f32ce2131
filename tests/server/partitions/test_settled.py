"""A follower's session leaves out what is settled: nobody may notice.

The follower and the leader know the same after a few fetches as if each had looked at all
partitions: whatever has happened to some of them, and however seldom to most.
"""

from __future__ import annotations

from asyncio import Future
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, TopicName
from dohle.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from dohle.records.batch import batches
from dohle.server.handlers.fetch import handle_fetch
from dohle.server.net.connection import Connection
from dohle.server.net.handler import RequestContext
from dohle.server.node import Node
from dohle.server.partitions.partitions import Partition
from tests.server.partitions.fetching import on_node
from tests.server.wire import create_topic
from tests.storage.logs import NOW_MS, batch

PARTITIONS = 4
VERSION = 17
FOLLOWER = BrokerId(2)
_WAIT_MS = 3_600_000


class _Nobody:
    listener = "PLAINTEXT"


_CONTEXT = RequestContext(cast("Connection", _Nobody()), VERSION, "test")


class Copy:
    """What the follower has of a partition, and what it was told."""

    def __init__(self) -> None:
        self.end = self.high_watermark = self.log_start = 0
        self.is_asked_anew = True
        self.claimed_epoch: int | None = None


class Place:
    """A leader of some partitions, and their follower."""

    def __init__(self, node: Node, topic: str) -> None:
        self._node = node
        found = node.broker.partitions.of_topic(TopicName(topic))
        self.partitions = [found[index] for index in range(PARTITIONS)]
        self._copies = [Copy() for _ in range(PARTITIONS)]
        self._session, self._epoch = 0, 0
        node.broker.commits.brokers[FOLLOWER] = 1
        for partition in self.partitions:
            self._change(partition)

    def _change(self, partition: Partition, epochs: int = 0) -> None:
        image, both = partition.image, (partition.image.leader, FOLLOWER)
        partition.follow(
            replace(
                image,
                replicas=both,
                isr=both,
                leader_epoch=image.leader_epoch + epochs,
                partition_epoch=image.partition_epoch + 1_000,
            )
        )
        self._node.broker.recheck(partition.key)

    # What happens

    def append(self, index: int) -> None:
        partition = self.partitions[index]
        partition.log.append_as_leader(batch([NOW_MS]), partition.leader_epoch)
        self._node.broker.note_unwritten(partition)
        self._node.broker.write_appends()

    def delete(self, index: int) -> None:
        log = self.partitions[index].log
        log.delete_records(log.high_watermark)
        self._node.broker.recheck(self.partitions[index].key)

    def elect(self, index: int) -> None:
        """Begin an epoch, of which the follower knows too."""
        partition = self.partitions[index]
        self._change(partition, epochs=1)
        partition.log.leader_epochs.assign(partition.leader_epoch, partition.log.log_end_offset)
        self._copies[index].is_asked_anew = True

    def lose_session(self, index: int) -> None:
        self._session = self._epoch = 0

    def begin_anew(self) -> None:
        """Close the session with the next request."""
        self._epoch = 0

    def claim_epoch(self, index: int, epoch: int) -> None:
        """Let the follower say that its last record is of this epoch."""
        self._copies[index].claimed_epoch = epoch
        self._copies[index].is_asked_anew = True

    # Fetches

    def fetch(self, wait_ms: int = 0) -> FetchResponse | Future[FetchResponse]:
        asked = []
        for index, (partition, copy) in enumerate(zip(self.partitions, self._copies, strict=True)):
            if copy.is_asked_anew or not self._epoch:
                copy.is_asked_anew = False
                last = copy.claimed_epoch or partition.log.leader_epochs.latest_epoch
                asked.append(
                    FetchPartition(
                        partition=index,
                        fetch_offset=copy.end,
                        current_leader_epoch=partition.leader_epoch,
                        last_fetched_epoch=-1 if last is None else last,
                        log_start_offset=copy.log_start,
                        partition_max_bytes=1 << 20,
                    )
                )
        topic_id = self.partitions[0].topic_id
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            session_id=self._session,
            session_epoch=self._epoch,
            topics=(FetchTopic(topic_id=topic_id, partitions=tuple(asked)),) if asked else (),
            replica_state=ReplicaState(replica_id=FOLLOWER, replica_epoch=1),
        )
        self._epoch += 1
        found = handle_fetch(self._node.broker, _CONTEXT, request)
        assert isinstance(found, FetchResponse | Future)
        return found

    def take(self, answer: FetchResponse) -> None:
        assert answer.error_code == 0
        self._session = answer.session_id
        for topic in answer.responses:
            for data in topic.partitions:
                assert data.error_code == 0
                copy = self._copies[data.partition_index]
                for each in batches(data.records or b""):
                    assert each.base_offset == copy.end
                    copy.end, copy.is_asked_anew = each.next_offset, True
                copy.high_watermark = min(data.high_watermark, copy.end)
                if copy.log_start != data.log_start_offset:
                    copy.log_start, copy.is_asked_anew = data.log_start_offset, True

    def check(self) -> None:
        """After a few fetches both know everything."""
        for _ in range(3):
            answer = self.fetch()
            assert isinstance(answer, FetchResponse)
            self.take(answer)
        before_ms = self._node.broker.clock.monotonic_ms()
        answer = self.fetch()
        assert isinstance(answer, FetchResponse)
        assert answer.responses == (), "there was nothing left to tell"
        for partition, copy in zip(self.partitions, self._copies, strict=True):
            log, known = partition.log, partition.replication.follower(FOLLOWER)
            assert known is not None
            assert copy.end == log.log_end_offset == known.log_end_offset
            assert copy.high_watermark == log.high_watermark == log.log_end_offset
            assert copy.log_start == log.log_start_offset == known.log_start_offset
            assert known.caught_up_ms >= before_ms

    def wait_for(self, index: int) -> None:
        """Let a fetch wait at all partitions: an append to any of them answers it."""
        waiting = self.fetch(_WAIT_MS)
        assert isinstance(waiting, Future)
        assert not waiting.done()
        self.append(index)
        assert waiting.done()
        self.take(waiting.result())
        assert self._copies[index].end == self.partitions[index].log.log_end_offset


EVENTS = st.tuples(
    st.sampled_from(["append", "append", "append", "delete", "elect", "lose_session"]),
    st.integers(0, PARTITIONS - 1),
)


def test_a_session_that_looks_at_changes_alone_tells_what_one_that_looks_at_all_would(
    tmp_path: Path,
) -> None:
    numbers = count()
    with on_node(tmp_path) as (runner, node, wire):

        async def scenario(steps: list[tuple[str, int] | None]) -> None:
            topic = f"t-{next(numbers)}"
            await create_topic(wire, topic, PARTITIONS)
            place = Place(node, topic)
            place.check()
            for step in steps:
                if step is None:
                    answer = place.fetch()
                    assert isinstance(answer, FetchResponse)
                    place.take(answer)
                else:
                    getattr(place, step[0])(step[1])
            place.check()
            for index in range(PARTITIONS):
                place.wait_for(index)
                place.check()

        @settings(max_examples=60)
        @given(steps=st.lists(st.one_of(st.none(), EVENTS, EVENTS), max_size=25))
        def check(steps: list[tuple[str, int] | None]) -> None:
            runner.run(scenario(steps))

        check()


def test_what_is_settled_is_not_looked_at_and_how_long_a_follower_was_behind_is_known(
    tmp_path: Path,
) -> None:
    """G2: it was caught up at its last fetch before the append, and is not since."""
    with on_node(tmp_path) as (runner, node, wire):

        async def scenario() -> None:
            await create_topic(wire, "t", PARTITIONS)
            place = Place(node, "t")
            place.check()
            counted = [each.traffic.fetch_requests for each in place.partitions]
            place.wait_for(0)
            after = [each.traffic.fetch_requests for each in place.partitions]
            assert [now - then for now, then in zip(after, counted, strict=True)] == [1, 0, 0, 0]
            last = place.partitions[1].replication.follower(FOLLOWER)
            assert last is not None
            caught_up_ms = last.caught_up_ms
            place.append(1)
            # Others go on; the record that it did not take in is none of its own.
            fetched = place.fetch()
            assert isinstance(fetched, FetchResponse)
            assert last.caught_up_ms == caught_up_ms
            again = place.fetch()
            assert isinstance(again, FetchResponse)
            assert last.caught_up_ms == caught_up_ms, "it asks for the same again"

        runner.run(scenario())


def test_nothing_is_left_of_sessions_that_end(tmp_path: Path) -> None:
    with on_node(tmp_path) as (runner, node, wire):

        async def scenario() -> None:
            await create_topic(wire, "t", PARTITIONS)
            place = Place(node, "t")
            for number in range(20):
                place.check()
                place.begin_anew()
                assert node.broker.fetch_sessions.watches.count <= 3 * PARTITIONS, number

        runner.run(scenario())


def test_sessions_of_followers_that_have_vanished_are_told_of_a_partition_once(
    tmp_path: Path,
) -> None:
    """They stay for minutes, and there may be many: appends must not go through all of them."""
    with on_node(tmp_path) as (runner, node, wire):

        async def scenario() -> None:
            await create_topic(wire, "t", PARTITIONS)
            place = Place(node, "t")
            watches = node.broker.fetch_sessions.watches
            for _ in range(20):
                place.check()
                place.lose_session(0)
            place.check()
            assert watches.count == 21 * PARTITIONS
            for index in range(PARTITIONS):
                place.append(index)
            assert watches.count == 0
            # The one that is in use hears of them again.
            place.check()
            assert watches.count == PARTITIONS
            for index in range(PARTITIONS):
                place.wait_for(index)
                place.check()

        runner.run(scenario())


def test_a_follower_with_an_epoch_that_nobody_knows_is_told_so_for_that_partition(
    tmp_path: Path,
) -> None:
    """It has as much as the leader, but of another history: the rest of its fetch is answered."""
    with on_node(tmp_path) as (runner, node, wire):
        runner.run(create_topic(wire, "odd", PARTITIONS))
        place = Place(node, "odd")

        async def fetches() -> FetchResponse:
            for _ in range(3):
                answer = place.fetch()
                assert isinstance(answer, FetchResponse)
                place.take(answer)
            place.claim_epoch(1, 99)
            answer = place.fetch()
            assert isinstance(answer, FetchResponse)
            return answer

        answer = runner.run(fetches())
        assert answer.error_code == 0
        (topic,) = answer.responses
        codes = {each.partition_index: each.error_code for each in topic.partitions}
        assert codes == {1: ErrorCode.OFFSET_OUT_OF_RANGE}
