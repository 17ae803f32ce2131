"""When a node makes a snapshot, and of what (R95, R96), in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from dohle.core.config.static import SINGLE_NODE, BrokerConfig
from dohle.core.host import SystemHost
from dohle.core.seams import ManualClock
from dohle.metadata.decision import VersionedRecord
from dohle.metadata.delta import Delta
from dohle.metadata.image import ClusterImage
from dohle.protocol.messages.records.cluster_metadata import (
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)
from dohle.protocol.schema import MetadataRecord
from dohle.server.net.turns import Turns
from dohle.server.quorum.image_loader import ImageLoader
from dohle.server.quorum.metadata_log import MetadataBatch
from dohle.server.quorum.snapshots import SnapshotId, write_snapshot
from dohle.server.quorum.snapshotter import Snapshotter
from dohle.testing.simulation.files import SimulatedFileSystem
from tests.server.quorum.raft_logs import NOW_MS, data_batch, open_log

EPOCH = 3
HOUR_MS = 3_600_000
#: The size that a batch of these tests says it has.
SIZE = 1_000
FEATURE = FeatureLevelRecord(name="metadata.version", feature_level=29)
CONFIG = ConfigRecord(resource_type=4, resource_name="", name="a", value="1")


class Scene:
    """A log, the image made of it, and who makes snapshots of that."""

    def __init__(self, **configs: str) -> None:
        self.clock = ManualClock(NOW_MS)
        self.fs = SimulatedFileSystem(self.clock)
        self.log = open_log(self.fs, self.clock)[1]
        loop = asyncio.get_running_loop()
        self.images = ImageLoader(Turns(loop, SystemHost()), self.fs, self.log)
        names = {name.replace("_", "."): value for name, value in configs.items()}
        config, _ = BrokerConfig.from_properties({**SINGLE_NODE, "log.dirs": "/data", **names})
        self.writes = 0
        self.snapshotter = Snapshotter(
            loop,
            self.fs,
            self.log,
            self.images,
            config,
            self.clock,
            run_in_thread=self._run,
            on_log_changed=lambda: None,
        )
        self.images.subscribe(self.snapshotter.on_image)

    async def _run(self, write: Callable[[], None]) -> None:
        self.writes += 1
        write()

    async def commit(
        self, *records: MetadataRecord, epoch: int = EPOCH, timestamp: int = NOW_MS
    ) -> None:
        """Let a batch be appended and committed."""
        offset = self.log.end_offset
        batch = data_batch(offset, epoch, len(records))
        self.log.append_batch(batch, epoch)
        last = offset + len(records) - 1
        await self.images.on_commit(
            MetadataBatch(list(records), last, epoch, SIZE, timestamp=timestamp)
        )
        await self.snapshotter.stop()

    async def upkeep(self) -> None:
        """Let the node look whether one is due, as it does every now and then."""
        self.snapshotter.write_if_due()
        await self.snapshotter.stop()

    @property
    def ids(self) -> list[SnapshotId]:
        return list(self.log.store.ids)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def body() -> None:
        await scenario()

    asyncio.run(body())


def test_r95_a_snapshot_is_made_when_enough_was_appended() -> None:
    async def scenario() -> None:
        scene = Scene(metadata_log_max_record_bytes_between_snapshots=str(2 * SIZE))
        await scene.commit(FEATURE)
        assert scene.ids == []
        await scene.commit(CONFIG)
        assert scene.ids == [SnapshotId(2, EPOCH)]
        await scene.commit(CONFIG)
        assert len(scene.ids) == 1, "what the last one has does not count"
        await scene.commit(CONFIG)
        assert scene.ids == [SnapshotId(2, EPOCH), SnapshotId(4, EPOCH)]

    run(scenario)


def test_r95_or_when_the_last_one_is_an_hour_old_and_something_has_changed() -> None:
    async def scenario() -> None:
        scene = Scene()
        await scene.commit(FEATURE)
        scene.clock.advance(HOUR_MS - 1)
        await scene.commit(CONFIG)
        assert scene.ids == [], "the process counts as the beginning"
        scene.clock.advance(1)
        await scene.upkeep()
        assert scene.ids == [SnapshotId(2, EPOCH)]
        scene.clock.advance(2 * HOUR_MS)
        await scene.upkeep()
        assert scene.writes == 1, "not twice the same"
        await scene.commit(CONFIG)
        assert scene.ids == [SnapshotId(2, EPOCH), SnapshotId(3, EPOCH)]

    run(scenario)


def test_r95_an_interval_of_0_turns_the_time_off() -> None:
    async def scenario() -> None:
        scene = Scene(metadata_log_max_snapshot_interval_ms="0")
        await scene.commit(FEATURE)
        scene.clock.advance(1_000 * HOUR_MS)
        await scene.commit(CONFIG)
        await scene.upkeep()
        assert scene.ids == []

    run(scenario)


@pytest.mark.parametrize("limit", [SIZE, 3 * SIZE])
def test_r95_a_snapshot_that_was_loaded_is_not_made_again_and_counts_as_the_last(
    limit: int,
) -> None:
    async def scenario() -> None:
        scene = Scene(metadata_log_max_record_bytes_between_snapshots=str(limit))
        await scene.commit(FEATURE, CONFIG)
        await scene.commit(CONFIG)
        before = scene.writes
        scene.clock.advance(HOUR_MS - 1)
        loaded = SnapshotId(40, 7)
        path = scene.log.store.path(loaded)
        write_snapshot(scene.fs, path, [VersionedRecord(FEATURE, 0)], epoch=7, timestamp=NOW_MS)
        scene.log.install(loaded)
        await scene.images.on_snapshot(loaded)
        scene.clock.advance(HOUR_MS - 1)
        await scene.upkeep()
        assert (scene.ids[-1], scene.writes) == (loaded, before)
        await scene.commit(CONFIG, epoch=7)
        assert scene.writes == before + (limit == SIZE), "only what came after it counts"

    run(scenario)


def test_r95_none_is_made_in_the_middle_of_a_transaction() -> None:
    """R82: what is begun is in the log, but not in the image that others may load."""

    async def scenario() -> None:
        scene = Scene(metadata_log_max_record_bytes_between_snapshots="1")
        await scene.commit(BeginTransactionRecord(), FEATURE)
        await scene.upkeep()
        assert scene.ids == []
        await scene.commit(CONFIG, EndTransactionRecord())
        assert scene.ids == [SnapshotId(4, EPOCH)]

    run(scenario)


def test_r96_a_snapshot_is_named_by_its_end_and_the_epoch_of_the_last_batch_in_it() -> None:
    """And says how old that batch is, whenever it is made."""

    async def scenario() -> None:
        scene = Scene(metadata_log_max_record_bytes_between_snapshots=str(2 * SIZE))
        await scene.commit(FEATURE, CONFIG, CONFIG, epoch=4)
        scene.clock.advance(5_000)
        await scene.commit(CONFIG, CONFIG, epoch=6, timestamp=NOW_MS + 77)
        (made,) = scene.ids
        assert made == SnapshotId(5, 6)
        assert made.end_offset <= scene.log.end_offset
        assert scene.log.store.last_contained_log_timestamp(made) == NOW_MS + 77

    run(scenario)


def test_r123_what_is_not_taken_in_by_all_is_not_told_as_applied() -> None:
    """A45: the controller waits for it before it lets a broker go that has led (A41)."""

    async def scenario() -> None:
        scene = Scene()
        may_go_on = asyncio.Event()
        seen: list[tuple[int, int]] = []

        async def listen(image: ClusterImage, delta: Delta) -> None:
            seen.append((image.offset, scene.images.applied_offset))
            await may_go_on.wait()

        await scene.commit(FEATURE)
        assert scene.images.applied_offset == 0
        scene.images.subscribe(listen)
        committing = asyncio.ensure_future(scene.commit(CONFIG, CONFIG))
        while not seen:
            await asyncio.sleep(0)
        assert scene.images.image.offset == 2
        assert scene.images.applied_offset == 0
        may_go_on.set()
        await committing
        assert seen == [(2, 0)]
        assert scene.images.applied_offset == 2

    run(scenario)
