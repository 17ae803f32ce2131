"""How far reassignments are: what every new replica has of what its leader has."""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from dohle.client import Admin, PartitionReassignment
    from dohle.core.ids import TopicPartition

_PERIOD_S = 0.5
_LOOKS, _LOOK_S = 4, 0.25

_T = TypeVar("_T")


class Copied(NamedTuple):
    """Bytes of new replicas: what they have, and what they will have."""

    done: int
    total: int

    @property
    def percent(self) -> int:
        """How much is done; all, if there is nothing to copy."""
        return 100 * self.done // self.total if self.total else 100


async def copied(
    admin: Admin, ongoing: Mapping[TopicPartition, PartitionReassignment]
) -> dict[TopicPartition, Copied]:
    """Return how much of each partition is copied; brokers that do not answer count as empty."""
    if not ongoing:
        return {}
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for key in ongoing:
        topics[key.topic].append(key.partition)
    sizes: defaultdict[TopicPartition, dict[int, int]] = defaultdict(dict)
    for broker, directories in (await admin.describe_log_dirs(topics=topics)).done.items():
        for directory in directories:
            for replica in directory.replicas:
                if not replica.is_future:
                    sizes[replica.partition][broker] = replica.size
    found = {}
    for key, one in ongoing.items():
        size = max(sizes[key].values(), default=0)
        done = sum(min(sizes[key].get(broker, 0), size) for broker in one.adding)
        found[key] = Copied(done, size * len(one.adding))
    return found


async def await_end(admin: Admin, partitions: Mapping[TopicPartition, object]) -> None:
    """Return when none of the partitions is reassigned any more; show progress on a terminal."""
    keys = list(partitions)
    known: dict[TopicPartition, Copied] = {}
    async with _bar(len(keys)) as bar:
        while ongoing := await admin.list_partition_reassignments(keys):
            if bar is not None:
                known |= await copied(admin, ongoing)
                bar.show(
                    len(keys) - len(ongoing),
                    # What is complete has copied everything.
                    sum(known[key].done if key in ongoing else known[key].total for key in known),
                    sum(each.total for each in known.values()),
                )
            await asyncio.sleep(_PERIOD_S)
        if bar is not None:
            total = sum(each.total for each in known.values())
            bar.show(len(keys), total, total)


async def look_again(look: Callable[[], Awaitable[_T]], wanted: object) -> _T:
    """Look a few times, until there is what is wanted; return what there is."""
    found = await look()
    for _ in range(_LOOKS):
        if found == wanted:
            break
        await asyncio.sleep(_LOOK_S)
        found = await look()
    return found


class _Bar(Protocol):
    def show(self, complete: int, done: int, total: int) -> None:
        """Show how many partitions are complete, and how many bytes are copied."""


@asynccontextmanager
async def _bar(partitions: int) -> AsyncIterator[_Bar | None]:
    """Draw a bar on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.fields[complete]}/{task.fields[partitions]} partitions"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=None, complete=0, partitions=partitions)

        class Drawn:
            def show(self, complete: int, done: int, total: int) -> None:
                progress.update(task, complete=complete, completed=done, total=max(total, 1))

        yield Drawn()
