"""What the readers of the metadata log are told, and in which order (R76)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from dohle.core.host import SystemHost
from dohle.core.ids import BrokerId
from dohle.core.seams import ManualClock
from dohle.core.steps import finish
from dohle.metadata.decision import VersionedRecord
from dohle.protocol.messages.records.cluster_metadata import NoOpRecord
from dohle.protocol.record_framing import encode_metadata_record
from dohle.raft.values import LeaderAndEpoch
from dohle.records.builder import BatchBuilder
from dohle.server.net.turns import Turns
from dohle.server.quorum.commit_feed import CommitFeed
from dohle.server.quorum.metadata_log import MetadataBatch
from dohle.server.quorum.raft_log import RaftLog
from dohle.server.quorum.snapshots import SnapshotId, write_snapshot
from dohle.testing.simulation.files import SimulatedFileSystem
from tests.server.faults import until
from tests.server.quorum.raft_logs import NOW_MS, joined, open_log, voters_batch

NOBODY = LeaderAndEpoch(None, 5)
SELF = LeaderAndEpoch(BrokerId(1), 6)
OTHER = LeaderAndEpoch(BrokerId(2), 7)
RECORD = VersionedRecord(NoOpRecord(), 0)


class Listener:
    """Notes what it is told; waits within a commit if it is asked to."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.failure: Exception | None = None

    async def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.told.append(leader)

    async def on_commit(self, batch: MetadataBatch) -> None:
        await self.may_go_on.wait()
        if self.failure is not None:
            raise self.failure
        self.told.append(batch.last_offset)

    async def on_snapshot(self, snapshot: SnapshotId) -> None:
        self.told.append(snapshot)

    def on_failure(self, reason: str) -> None:
        self.told.append(reason)


class Scene:
    """A log, and somebody who is told of it."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW_MS)
        self.fs = SimulatedFileSystem(self.clock)
        self.log: RaftLog = open_log(self.fs, self.clock)[1]
        self.listener = Listener()
        self.fatal: list[str] = []
        loop = asyncio.get_running_loop()
        turns = Turns(loop, SystemHost())
        self.feed = CommitFeed(
            loop, self.log, [self.listener], turns=turns, on_fatal=self.fatal.append
        )

    def write(self, count: int, epoch: int = 1) -> None:
        """Append batches of two records."""
        for _ in range(count):
            builder = BatchBuilder(partition_leader_epoch=epoch)
            for _ in range(2):
                builder.append(NOW_MS, None, encode_metadata_record(*RECORD))
            self.log.append_batch(builder.build(), epoch)

    def commit(self, end_offset: int) -> None:
        self.log.log.update_high_watermark(end_offset)
        self.feed.committed(end_offset)

    async def told(self, count: int) -> list[object]:
        await until(lambda: len(self.listener.told) >= count)
        return self.listener.told


def run(scenario: Callable[[Scene], Awaitable[None]]) -> None:
    async def body() -> None:
        scene = Scene()
        await scenario(scene)
        await scene.feed.close()

    asyncio.run(body())


def test_batches_are_told_in_order_up_to_the_high_watermark() -> None:
    """R14: nothing before it is known, nothing above it."""

    async def scenario(scene: Scene) -> None:
        scene.write(3)
        finish(scene.log.append_fetched(joined([voters_batch(6, 1, 1)]), 1))
        scene.commit(4)
        assert await scene.told(2) == [1, 3]
        scene.commit(8)
        assert await scene.told(4) == [1, 3, 5, 7]

    run(scenario)


def test_the_leaders_own_batches_are_told_as_they_were_made_and_replaced_ones_are_not() -> None:
    async def scenario(scene: Scene) -> None:
        scene.write(1)
        own = MetadataBatch([RECORD.record] * 2, 3, 1, 100)
        scene.write(1)
        scene.feed.wrote(own)
        scene.commit(4)
        assert await scene.told(2) == [1, 3]
        # Another leader has taken over, and has written others at these offsets.
        scene.feed.wrote(MetadataBatch([RECORD.record] * 5, 8, 1, 100))
        scene.feed.forget_own()
        scene.write(1, epoch=2)
        scene.commit(6)
        assert await scene.told(3) == [1, 3, 5]

    run(scenario)


def test_a_node_hears_that_it_leads_after_all_that_older_leaders_wrote() -> None:
    """R76."""

    async def scenario(scene: Scene) -> None:
        scene.write(2)
        scene.feed.leader_changed(NOBODY, None)
        scene.feed.leader_changed(SELF, 2)
        scene.commit(2)
        assert await scene.told(2) == [NOBODY, 1]
        scene.commit(4)
        assert await scene.told(4) == [NOBODY, 1, 3, SELF]

    run(scenario)


def test_who_does_not_lead_any_more_is_not_told_that_it_does_but_that_it_does_not() -> None:
    async def scenario(scene: Scene) -> None:
        scene.write(2)
        scene.feed.leader_changed(SELF, 2)
        scene.feed.leader_changed(OTHER, None)
        scene.commit(4)
        assert await scene.told(3) == [OTHER, 1, 3]

    run(scenario)


def test_a_change_of_the_leader_overtakes_commits_that_are_not_told_yet() -> None:
    async def scenario(scene: Scene) -> None:
        scene.write(3)
        scene.listener.may_go_on.clear()
        scene.commit(6)
        await asyncio.sleep(0)
        scene.feed.leader_changed(OTHER, None)
        scene.listener.may_go_on.set()
        assert await scene.told(4) == [1, OTHER, 3, 5]

    run(scenario)


def test_a_snapshot_takes_the_place_of_what_is_not_in_the_log_any_more() -> None:
    async def scenario(scene: Scene) -> None:
        scene.write(1)
        scene.commit(2)
        await scene.told(1)
        snapshot = SnapshotId(20, 4)
        path = scene.log.store.path(snapshot)
        write_snapshot(scene.fs, path, (), epoch=4, timestamp=NOW_MS)
        scene.log.install(snapshot)
        scene.write(1, epoch=5)
        scene.commit(22)
        assert await scene.told(3) == [1, snapshot, 21]

    run(scenario)


def test_a_reader_that_begins_gets_the_newest_snapshot_first() -> None:
    async def scenario(scene: Scene) -> None:
        scene.write(3)
        for end_offset in (2, 4):
            snapshot = SnapshotId(end_offset, 1)
            path = scene.log.store.path(snapshot)
            write_snapshot(scene.fs, path, (), epoch=1, timestamp=NOW_MS)
            scene.log.store.note(snapshot)
        scene.commit(6)
        assert await scene.told(2) == [SnapshotId(4, 1), 5]

    run(scenario)


def test_a_batch_that_cannot_be_taken_in_ends_the_node() -> None:
    """R5: what escapes is fatal, and nothing is told behind it."""

    async def scenario(scene: Scene) -> None:
        scene.write(2)
        scene.listener.failure = ValueError("no such partition")
        scene.commit(2)
        await until(lambda: bool(scene.fatal))
        scene.commit(4)
        assert scene.fatal == ["the metadata log cannot be used any more: no such partition"]
        assert scene.listener.told == []

    run(scenario)
