"""A follower's shortcut comes to the same as the slow path: its answers, and what the leader knows.

Two topics are led alike, and have a follower each. The fetches of one go over a connection that
learns, those of the other over one that has learnt nothing. Whatever happens to both topics, both
followers are told the same, byte for byte, and the leader knows the same of both.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, TopicName
from dohle.core.seams import ManualClock
from dohle.protocol.apis import ApiKey
from dohle.protocol.framing import encode_request, parse_response_header
from dohle.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from dohle.records.batch import batches
from dohle.server.net.connection import Connection
from dohle.server.net.dispatch import Dispatcher
from dohle.server.net.outcome import FileRecords, Frame
from dohle.server.net.timing import ConnectionTimes
from dohle.server.node import Node
from dohle.server.partitions.partitions import Partition
from dohle.server.registry import all_handlers
from dohle.server.shortcuts.follower_fetch import FollowerFetchShortcut
from tests.server.faults import watched_node
from tests.server.wire import Wire, create_topic
from tests.storage.logs import NOW_MS, batch

PARTITIONS = 3
FOLLOWER = BrokerId(2)
_MAX_WAIT_MS = 500
_LIMIT = 1 << 20


class _Replies:
    is_open = False


class _Peer:
    """As much of a connection as a dispatcher needs."""

    def __init__(self, now: Any) -> None:
        self.listener, self.peer = "PLAINTEXT", "follower"
        self.shortcuts: dict[int, Any] = {}
        self.unlearnt: dict[int, int] = {}
        self.times = ConnectionTimes(now)
        self.last_active = 0.0
        self.replies = _Replies()


class Copy:
    """What a follower has of a partition, and what it was told."""

    def __init__(self) -> None:
        self.end = self.log_start = 0
        self.epoch = -1
        self.is_asked_anew = True


class Side:
    """A topic that is led here, and its follower."""

    def __init__(self, node: Node, topic: str, version: int, *, learns: bool) -> None:
        self._node, self._version, self._learns = node, version, learns
        found = node.broker.partitions.of_topic(TopicName(topic))
        self.partitions = [found[index] for index in range(PARTITIONS)]
        self.topic_id = self.partitions[0].topic_id
        self._copies = [Copy() for _ in range(PARTITIONS)]
        self._forgotten: list[int] = []
        self.session = self._epoch = 0
        self._numbers = count(1)
        self._peer = _Peer(node.broker.clock.monotonic_s)
        self._dispatcher = Dispatcher(asyncio.get_running_loop(), node.broker, all_handlers())
        self._waiting: Future[Any] | None = None
        #: How many fetches the shortcut has served.
        self.served = 0
        self.commits: list[tuple[int, int]] = []
        node.broker.commits.brokers[FOLLOWER] = 1
        for partition in self.partitions:
            self._change(partition)

    def _change(self, partition: Partition, epochs: int = 0, **changes: Any) -> None:
        image, both = partition.image, (partition.image.leader, FOLLOWER)
        values: dict[str, Any] = {
            "replicas": both,
            "isr": both,
            "leader_epoch": image.leader_epoch + epochs,
            "partition_epoch": image.partition_epoch + 1_000,
            **changes,
        }
        partition.follow(replace(image, **values))
        self._node.broker.recheck(partition.key)

    # What happens

    def append(self, index: int, size: int) -> None:
        partition = self.partitions[index]
        if partition.is_led:
            partition.log.append_as_leader(
                batch([NOW_MS], value=b"v" * size), partition.leader_epoch
            )
            self._node.broker.note_unwritten(partition)
            self._node.broker.write_appends()
            self.wait_for_commit(index)

    def wait_for_commit(self, index: int) -> None:
        """Take down at which high watermark a commit is told."""
        partition = self.partitions[index]
        log = partition.log

        def told(code: ErrorCode) -> None:
            self.commits.append((index, log.high_watermark if code is ErrorCode.NONE else -1))

        self._node.broker.commits.wait(partition, log.log_end_offset, 60_000, told)

    def roll(self, index: int, size: int) -> None:
        self.partitions[index].log.roll()

    def delete(self, index: int, size: int) -> None:
        log = self.partitions[index].log
        log.delete_records(log.high_watermark)
        self._node.broker.recheck(self.partitions[index].key)

    def elect(self, index: int, size: int) -> None:
        """Begin an epoch, of which the follower learns or not."""
        partition = self.partitions[index]
        self._change(partition, epochs=1)
        partition.log.leader_epochs.assign(partition.leader_epoch, partition.log.log_end_offset)
        self._copies[index].is_asked_anew = size % 2 == 0

    def shrink(self, index: int, size: int) -> None:
        """Have the follower out of the ISR."""
        partition = self.partitions[index]
        self._change(partition, isr=(partition.image.leader,))

    def leave(self, index: int, size: int) -> None:
        """Have the follower be none."""
        partition = self.partitions[index]
        leader = (partition.image.leader,)
        self._change(partition, replicas=leader, isr=leader)

    def come_back(self, index: int, size: int) -> None:
        self._change(self.partitions[index])
        self._copies[index].is_asked_anew = True

    def diverge(self, index: int, size: int) -> None:
        """Let the follower have more than the leader, of an epoch that may be known."""
        copy = self._copies[index]
        copy.end, copy.epoch, copy.is_asked_anew = copy.end + 1, size % 3, True

    def forget(self, index: int, size: int) -> None:
        self._forgotten.append(index)
        self._copies[index].is_asked_anew = True

    def lose_session(self, index: int, size: int) -> None:
        self._epoch = 0

    def repeat_epoch(self, index: int, size: int) -> None:
        self._epoch = max(1, self._epoch - 1)

    # Fetches

    def _request(self, wait_ms: int) -> FetchRequest:
        asked, forgotten = [], []
        for index, copy in enumerate(self._copies):
            if index in self._forgotten and self._epoch:
                forgotten.append(index)
            elif copy.is_asked_anew or not self._epoch:
                copy.is_asked_anew = False
                asked.append(
                    FetchPartition(
                        partition=index,
                        fetch_offset=copy.end,
                        current_leader_epoch=self.partitions[index].leader_epoch,
                        last_fetched_epoch=copy.epoch,
                        log_start_offset=copy.log_start,
                        partition_max_bytes=_LIMIT,
                    )
                )
        self._forgotten = []
        return FetchRequest(
            replica_id=FOLLOWER if self._version < 15 else BrokerId(-1),
            replica_state=ReplicaState(replica_id=FOLLOWER, replica_epoch=1)
            if self._version >= 15
            else ReplicaState(),
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=40_000,
            session_id=self.session,
            session_epoch=self._epoch,
            topics=(FetchTopic(topic_id=self.topic_id, partitions=tuple(asked)),) if asked else (),
            forgotten_topics_data=(
                ForgottenTopic(topic_id=self.topic_id, partitions=tuple(forgotten)),
            )
            if forgotten
            else (),
        )

    def fetch(self, wait_ms: int) -> None:
        """Send the next fetch, unless one waits."""
        if self._waiting is not None:
            return
        if not self._learns:
            self._peer.shortcuts.clear()
        self._peer.unlearnt.clear()
        request = self._request(wait_ms)
        chunks = encode_request(request, self._version, next(self._numbers), "follower")
        frame = memoryview(bytearray(b"".join(chunks)[4:]))
        self._epoch += 1
        learnt, before = self._learnt, self._served_by(self._learnt)
        reply = self._dispatcher.handle(frame, cast("Connection", self._peer))
        self.served += self._served_by(learnt) - before
        if isinstance(reply, list):
            self._waiting = asyncio.get_running_loop().create_future()
            self._waiting.set_result(reply)
            self._dispatcher.complete = lambda answered: answered.result()  # type: ignore[method-assign]
        else:
            assert isinstance(reply, Future)
            self._dispatcher.__dict__.pop("complete", None)
            self._waiting = reply

    def take(self) -> bytes | None:
        """Take in an answer that has come; return it, with what is the topic's own left out."""
        if self._waiting is None or not self._waiting.done():
            return None
        frame, self._waiting = self._dispatcher.complete(self._waiting), None
        data = _bytes_of(frame)
        _, body = parse_response_header(ApiKey.FETCH, self._version, data, 4)
        answer, _ = FetchResponse.decode(self._version, data, body)
        told = data.replace(self.topic_id, b"topic-id-16bytes")
        if self.session:
            told = told.replace(self.session.to_bytes(4, "big"), b"sess")
        if answer.error_code:
            self._epoch = 0
        else:
            self.session = answer.session_id
        told = told.replace(self.session.to_bytes(4, "big"), b"sess")
        for topic in answer.responses:
            for each in topic.partitions:
                self._take(each.partition_index, each)
        return told

    def _take(self, index: int, told: Any) -> None:
        copy = self._copies[index]
        if told.error_code or told.diverging_epoch.epoch >= 0:
            copy.end = max(0, min(copy.end, self.partitions[index].log.log_end_offset))
            latest = self.partitions[index].log.leader_epochs.latest_epoch
            copy.epoch = -1 if latest is None else latest
            copy.is_asked_anew = True
            return
        for each in batches(told.records or b""):
            copy.end, copy.epoch = each.next_offset, each.partition_leader_epoch
            copy.is_asked_anew = True
        if copy.log_start != told.log_start_offset:
            copy.log_start, copy.is_asked_anew = told.log_start_offset, True
            copy.end = max(copy.end, copy.log_start)

    @property
    def is_waiting(self) -> bool:
        return self._waiting is not None and not self._waiting.done()

    @property
    def _learnt(self) -> FollowerFetchShortcut | None:
        learnt = self._peer.shortcuts.get(ApiKey.FETCH)
        assert learnt is None or isinstance(learnt, FollowerFetchShortcut)
        return learnt

    def _served_by(self, learnt: FollowerFetchShortcut | None) -> int:
        return 0 if learnt is None else learnt.served

    def known(self) -> list[Any]:
        """Return all that the leader knows of the follower, and what came of that."""
        found: list[Any] = [self.commits]
        for partition in self.partitions:
            log, replication = partition.log, partition.replication
            follower = replication.follower(FOLLOWER)
            found.append(
                (
                    (log.high_watermark, log.log_end_offset, log.log_start_offset),
                    (replication.high_watermark, replication.maximal_isr, replication.isr),
                    follower
                    and (
                        follower.log_end_offset,
                        follower.log_start_offset,
                        follower.fetched_ms,
                        follower.caught_up_ms,
                        follower.broker_epoch,
                        follower.leader_end_at_fetch,
                    ),
                    (partition.traffic.fetch_requests, partition.traffic.replication_bytes_out),
                )
            )
        sessions = self._node.broker.fetch_sessions
        if self.session and sessions.size_of(self.session):
            session = sessions._sessions[self.session]
            found.append([part.partition for part in session.partitions.values()])
            found.append([part.partition for part in session.unsettled or ()])
            told = [
                (each.partition, each.high_watermark, each.log_start_offset)
                for each in session.partitions.values()
            ]
            found.append((told, session.epoch, session.last_used_ms))
        return found

    def close(self) -> None:
        if self._waiting is not None:
            self._dispatcher.forget(self._waiting)


def _bytes_of(frame: Frame) -> bytes:
    return b"".join(
        chunk.file.read_at(chunk.position, chunk.size) if isinstance(chunk, FileRecords) else chunk
        for chunk in frame
    )


@contextmanager
def on_watched_node(path: Path) -> Iterator[tuple[asyncio.Runner, Node, ManualClock]]:
    clock = ManualClock()
    with asyncio.Runner() as runner:
        # Its clock goes on by seconds at once, and its heartbeats are sent in real time.
        life = watched_node(path, [], {"broker.session.timeout.ms": "1000000000"}, clock=clock)
        node = runner.run(life.__aenter__())
        try:
            yield runner, node, clock
        finally:
            runner.run(life.__aexit__(None, None, None))


_SIZES = st.sampled_from([0, 1, 100, 17_000, 30_000])
_EVENTS = st.tuples(
    st.sampled_from(
        ["append"] * 8
        + ["roll", "delete", "elect", "shrink", "leave", "come_back", "come_back"]
        + ["diverge", "forget", "lose_session", "repeat_epoch"]
    ),
    st.integers(0, PARTITIONS - 1),
    _SIZES,
)
#: Something that happens, a fetch (None), or time that passes, in ms.
_STEPS = st.lists(
    st.one_of(_EVENTS, st.none(), st.none(), st.sampled_from([3, 600, 6_000])), max_size=40
)


def test_a_follower_is_told_the_same_by_the_shortcut_and_the_leader_knows_the_same(
    tmp_path: Path,
) -> None:
    numbers, served, waited = count(), 0, 0
    with on_watched_node(tmp_path) as (runner, node, clock):

        async def scenario(version: int, wait_ms: int, steps: list[Any]) -> None:
            nonlocal served, waited
            number = next(numbers)
            async with await Wire.connect(node) as wire:
                for name in ("kept", "many"):
                    await create_topic(wire, f"{name}-{number}", PARTITIONS)
            sides = [
                Side(node, f"{name}-{number}", version, learns=name == "kept")
                for name in ("kept", "many")
            ]
            begin = [None, ("append", 0, 1), None, None]
            for step in [*begin, *steps, None]:
                for side in sides:
                    if isinstance(step, tuple):
                        getattr(side, step[0])(*step[1:])
                    elif step is None:
                        side.fetch(wait_ms)
                if isinstance(step, int):
                    clock.advance(step)
                    node.broker.purgatory._expire()
                await asyncio.sleep(0)
                waited += sides[0].is_waiting
                told = [side.take() for side in sides]
                assert told[0] == told[1]
                assert sides[0].known() == sides[1].known()
            served += sides[0].served
            for side in sides:
                side.close()

        @settings(max_examples=60)
        @given(
            version=st.sampled_from([13, 15, 17, 18]),
            wait_ms=st.sampled_from([_MAX_WAIT_MS, _MAX_WAIT_MS, 0]),
            steps=_STEPS,
        )
        def check(version: int, wait_ms: int, steps: list[Any]) -> None:
            runner.run(scenario(version, wait_ms, steps))

        check()
    assert served > 100, "little was compared"
    assert waited > 100
