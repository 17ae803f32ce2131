"""What the quorum tells those who read its log: committed batches, snapshots, and who leads.

One task calls the listeners, one after the other, in the order of the log; the quorum does not wait
for them. A change of the leader is told before further commits (R76). That this node itself leads
is told only once everything before its epoch has been: what older leaders wrote is known then.

A leader's own batches are kept until they are committed, so that they need not be read and decoded
again. Everything else is read from the log, up to the high watermark: what is below never changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dohle.core.errors import KafkaError
from dohle.core.steps import PlainSteps
from dohle.protocol.record_framing import decode_metadata_record
from dohle.protocol.schema import MetadataRecord
from dohle.raft.values import LeaderAndEpoch
from dohle.records.batch import Batch, batches
from dohle.server.net.slices import Slices
from dohle.server.net.turns import Turns
from dohle.server.quorum.metadata_log import (
    CorruptMetadataLog,
    MetadataBatch,
    metadata_batch,
)
from dohle.server.quorum.quorum import QuorumListener
from dohle.server.quorum.raft_log import RaftLog
from dohle.storage import log_read
from dohle.storage.log_values import Isolation

logger = logging.getLogger("dohle.server")

_READ_BYTES = 1024 * 1024
#: So much of the leader's own is kept at most; what is beyond is read from the log.
_KEPT_BYTES_MAX = 32 * 1024 * 1024


class _Leader(NamedTuple):
    """A leader that is to be told."""

    leader: LeaderAndEpoch
    #: Only after the commit of the batch at this offset.
    after_offset: int


class CommitFeed:
    """Tells listeners of the log, from an offset on."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        log: RaftLog,
        listeners: Sequence[QuorumListener],
        *,
        turns: Turns,
        on_fatal: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._log = log
        self._listeners = listeners
        self._turns = turns
        self._on_fatal = on_fatal
        #: The offset that is told next.
        self.position = 0
        self._committed = 0
        self._leaders: deque[_Leader] = deque()
        self._own: deque[MetadataBatch] = deque()
        self._own_bytes = 0
        self._working: asyncio.Task[None] | None = None

    # What has happened

    def wrote(self, batch: MetadataBatch) -> None:
        """Keep a batch that this node has written as the leader, until it is committed."""
        self._own.append(batch)
        self._own_bytes += batch.size
        if self._own_bytes > _KEPT_BYTES_MAX:
            self.forget_own()

    def forget_own(self) -> None:
        """Keep none of the leader's own batches: they may be replaced by another leader's."""
        self._own.clear()
        self._own_bytes = 0

    def committed(self, end_offset: int) -> None:
        """Tell everything below an offset."""
        self._committed = end_offset
        self._work_soon()

    def leader_changed(self, leader: LeaderAndEpoch, after_offset: int | None) -> None:
        """Tell who leads: at once, or after the commit of what is at an offset."""
        if after_offset is None:
            # Whatever was not told yet is over.
            self._leaders.clear()
        self._leaders.append(_Leader(leader, -1 if after_offset is None else after_offset))
        self._work_soon()

    # Telling

    def _work_soon(self) -> None:
        if self._working is None:
            self._working = self._loop.create_task(self._work())

    async def _work(self) -> None:
        try:
            while await self._tell_next():
                pass
        except Exception as error:
            # It is not known what the listeners have taken in: only a restart can tell.
            logger.error(
                "the metadata log could not be followed; this node stops: %s",
                error,
                # What a disk does needs no traceback.
                exc_info=not isinstance(error, OSError | KafkaError),
            )
            self._on_fatal(f"the metadata log cannot be used any more: {error}")
        else:
            self._working = None

    async def _tell_next(self) -> bool:
        """Tell one thing; False if there is nothing to tell."""
        if self._has_leader_to_tell:
            leader = self._leaders.popleft().leader
            for listener in self._listeners:
                await listener.on_leader_change(leader)
            return True
        if self.position >= self._committed:
            return False
        if self._needs_snapshot:
            await self._tell_snapshot()
            return True
        while self._own and self._own[0].last_offset < self.position:
            self._own_bytes -= self._own.popleft().size
        if self._own and self._first_own_offset == self.position:
            await self._tell_batch(self._own[0])
        else:
            await self._tell_from_log()
        return True

    @property
    def _has_leader_to_tell(self) -> bool:
        return bool(self._leaders) and self._leaders[0].after_offset < self.position

    @property
    def _first_own_offset(self) -> int:
        batch = self._own[0]
        return batch.last_offset + 1 - (len(batch.records) or len(batch.control))

    @property
    def _needs_snapshot(self) -> bool:
        latest = self._log.store.latest
        if latest is None or latest.end_offset <= self.position:
            return False
        return self.position == 0 or self.position < self._log.start_offset

    async def _tell_snapshot(self) -> None:
        snapshot = self._log.store.latest
        assert snapshot is not None
        try:
            for listener in self._listeners:
                await listener.on_snapshot(snapshot)
        except FileNotFoundError:
            # A newer one has taken its place meanwhile.
            if self._log.store.latest == snapshot:
                raise
            return
        self.position = snapshot.end_offset

    async def _tell_batch(self, batch: MetadataBatch) -> None:
        for listener in self._listeners:
            await listener.on_commit(batch)
        self.position = batch.last_offset + 1

    async def _tell_from_log(self) -> None:
        """Tell what one read returns."""
        log = self._log.log
        found = log_read.read(
            log, self.position, _READ_BYTES, Isolation.HIGH_WATERMARK, min_one_batch=True
        )
        if found.slice is None:
            raise CorruptMetadataLog(
                f"{self._log.folder} has nothing at offset {self.position}, although "
                f"it is committed up to {self._committed}"
            )
        slices = Slices(self._turns)
        for batch in batches(found.slice.read()):
            if batch.last_offset >= self.position:
                decoded = await slices.run(decode_in_steps(batch))
                await self._tell_batch(decoded)
            if self._has_leader_to_tell or self.position >= self._committed:
                return

    async def close(self) -> None:
        """Tell nothing more; what is being told is told to its end."""
        self._committed = 0
        self._leaders.clear()
        if self._working is not None:
            await asyncio.wait([self._working])


def decode_in_steps(batch: Batch) -> PlainSteps[MetadataBatch]:
    """Decode a batch of the log, which may have thousands of records."""
    if batch.is_control:
        return metadata_batch(batch)
    records: list[MetadataRecord] = []
    for record in batch:
        records.append(decode_metadata_record(record.value or b""))
        yield
    epoch = batch.partition_leader_epoch
    return MetadataBatch(records, batch.last_offset, epoch, batch.size, (), batch.max_timestamp)
