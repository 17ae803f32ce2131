"""Loading a group coordinator: as long as the commits are many, or the keys once it is cleaned."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

from bench.cleaner import clean, new_log, temporary_folder
from bench.report import Row, interleave, timed
from dohle.core.ids import TopicName, Uuid
from dohle.core.seams import SystemClock
from dohle.core.steps import finish
from dohle.groups.context import GroupContext
from dohle.groups.coordinator import GroupCoordinator
from dohle.groups.settings import GroupSettings
from dohle.protocol.apis import Coordinator
from dohle.protocol.messages.records.classic_group import OffsetCommitKey, OffsetCommitValue
from dohle.protocol.record_framing import encode_coordinator_key, encode_coordinator_value
from dohle.records.builder import BatchBuilder
from dohle.server.coordinators.loading import replay_log
from dohle.storage.log import Log

KEYS = 10_000
PARTITIONS = 100
_READ_BYTES = 5 * 1024 * 1024
_VALUE_VERSION = 3
_NOW_MS = 1_700_000_000_000


class _NoTopics:
    def id_of(self, name: str) -> Uuid | None:
        return None

    def name_of(self, topic_id: Uuid) -> TopicName | None:
        return None

    def partition_count(self, name: str) -> int:
        return 0

    def racks(self, name: str, partition: int) -> Sequence[str]:
        return ()

    def names(self) -> Collection[TopicName]:
        return ()

    def version(self) -> int:
        return 0


def rows(quick: bool) -> list[Row]:
    """Measure a log before and after it is cleaned."""
    commits, rounds = (100_000, 1) if quick else (1_000_000, 3)
    with temporary_folder() as folder:
        log = new_log(folder + "/logs")
        _fill(log, commits)
        size = log.size
        before = interleave({"load": lambda: timed(lambda: _load(log))}, rounds)["load"]
        cleaning = timed(lambda: clean(log))
        after = interleave({"load": lambda: timed(lambda: _load(log))}, rounds)["load"]
        case = (
            f"{commits:,} commits on {KEYS:,} keys, cleaned in {cleaning:.1f} s "
            f"({size / 1e6:.0f} MB became {log.size / 1e6:.1f})"
        )
        return [Row("loading", case, "s", after, "before cleaning", before)]


def _fill(log: Log, commits: int) -> None:
    """Commit the offsets of each group in turn, again and again, a batch for each commit."""
    groups = KEYS // PARTITIONS
    keys = [
        [
            encode_coordinator_key(
                OffsetCommitKey(group=f"group-{group}", topic="orders", partition=partition)
            )
            for partition in range(PARTITIONS)
        ]
        for group in range(groups)
    ]
    for number in range(commits // PARTITIONS):
        value = OffsetCommitValue(offset=number, commit_timestamp=_NOW_MS + number)
        encoded = encode_coordinator_value(value, _VALUE_VERSION)
        builder = BatchBuilder()
        builder.append_all(_NOW_MS + number, [(key, encoded) for key in keys[number % groups]])
        log.append_as_leader(builder.build(), 0)
    log.roll()
    log.update_high_watermark(log.log_end_offset)
    log.flush()


def _load(log: Log) -> None:
    context = GroupContext(SystemClock(), random.Random(1), GroupSettings, _NoTopics())
    machine = GroupCoordinator(context)
    steps = replay_log(
        Coordinator.GROUP, log, machine, read_bytes=_READ_BYTES, is_wanted=lambda: True
    )
    finish(steps)
    finish(machine.on_loaded())
