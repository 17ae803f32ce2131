"""The ledger: the compacted topic with the standing of each query, read from its leader.

Rules it keeps:

- Only records of committed transactions count. Markers are evaluated here, instead of asking for
  read_committed: an open transaction of another query must not hide what this one has written.
- What was read stays in memory, so that reading again costs one fetch of what is new.
- A newly elected leader may not know yet how far its log is committed, and return less than its
  predecessor has acknowledged. A caller that must not miss anything asks for the end first, which
  such a leader does not return (KIP-207).
- A ledger that is shorter than what was read of it, or was recreated, is read again.
- A ledger whose records expire would let a query write again what it has written: ``ledger_topic``
  creates the topic, and refuses or mends one with such a policy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from dohle.client import Cluster, End
from dohle.client.consumer.offsets import list_offsets
from dohle.client.errors import answered_error
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import ProducerId, TopicName, TopicPartition
from dohle.core.uuid import ZERO_UUID
from dohle.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from dohle.records.batch import Batch, batches
from dohle.records.control import ControlRecordType, parse_control
from dohle.records.errors import IncompleteBatch
from dohle.spark.sink.ledger_topic import LedgerTopic

_FETCH_BYTES = 8 * 1024 * 1024
#: How long to wait before checking for a marker again.
_MARKER_LOOK_S = 0.005

#: Offset, key and value of records.
Pending = list[tuple[int, str, bytes | None]]


class LedgerReader:
    """The contents of the ledger, as far as read; its methods run on one loop."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.partition = TopicPartition(TopicName(topic), 0)
        self._cluster = cluster
        self._topic_id = ZERO_UUID
        self._next_offset = 0
        self._values: dict[str, bytes] = {}
        #: By producer: what was written in a transaction that has no marker yet.
        self._pending: dict[ProducerId, Pending] = {}
        self._reading = asyncio.Lock()
        self._topic = LedgerTopic(cluster, self.partition)

    async def ensure_topic(self) -> None:
        """Create the topic if it does not exist, and else see that its records are kept."""
        await self._topic.ensure()

    async def read(self, key: str) -> bytes | None:
        """Read to the end, and return the last committed value of a key."""
        await self._catch_up()
        return self._values.get(key)

    async def read_surely(self, key: str) -> bytes | None:
        """Do the same, and miss nothing that was committed before, whoever leads now."""
        listed, _ = await asyncio.gather(
            list_offsets(self._cluster, {self.partition: End()}), self._catch_up()
        )
        end = listed.ok()[self.partition].offset
        if self._next_offset < end:
            await self._catch_up(end)
        return self._values.get(key)

    async def wait_until_ended(self, offset: int) -> None:
        """Wait until the outcome of the transaction that wrote a record can be read.

        A coordinator answers when the end is decided, and has the marker written afterwards.
        """
        await self._catch_up()
        while any(each[0] == offset for some in self._pending.values() for each in some):
            await asyncio.sleep(_MARKER_LOOK_S)
            await self._catch_up()

    async def _catch_up(self, end: int = 0) -> None:
        async with self._reading:
            await self._cluster.retry(
                f"reading {self.partition}",
                lambda: self._read_to_end(end),
                topics=(self.partition.topic,),
            )

    async def _read_to_end(self, end: int) -> None:
        while True:
            begin = self._next_offset
            try:
                data = await self._fetch()
            except KafkaError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE or not self._next_offset:
                    raise
                self._forget()
                continue
            for batch in _whole_batches(data):
                if batch.next_offset > self._next_offset:
                    self._take(batch)
            if self._next_offset >= max(end, data.high_watermark):
                return
            if self._next_offset == begin:
                raise KafkaError(
                    ErrorCode.OFFSET_NOT_AVAILABLE,
                    f"{self.partition} returns nothing from offset {begin} on, though it ends at "
                    f"{max(end, data.high_watermark)}",
                )

    def _take(self, batch: Batch) -> None:
        self._next_offset = batch.next_offset
        if batch.is_control:
            for record in batch:
                pending = self._pending.pop(batch.producer_id, [])
                if parse_control(record)[0] is ControlRecordType.COMMIT:
                    self._apply(pending)
        else:
            found: Pending = [
                (record.offset, record.key.decode(), record.value)
                for record in batch
                if record.key is not None
            ]
            if batch.is_transactional:
                self._pending.setdefault(batch.producer_id, []).extend(found)

    def _apply(self, written: Pending) -> None:
        for _, key, value in written:
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = value

    def _forget(self) -> None:
        self._next_offset = 0
        self._values.clear()
        self._pending.clear()

    async def _fetch(self) -> PartitionData:
        cluster, (topic, partition) = self._cluster, self.partition
        leader, info = await cluster.leader_of(self.partition)
        topic_id = cluster.metadata.topic_id(topic)
        if topic_id != self._topic_id:
            self._forget()
            self._topic_id = topic_id
        connection = await cluster.connection(leader.node_id)
        wanted = FetchPartition(
            partition=partition,
            current_leader_epoch=info.leader_epoch,
            fetch_offset=self._next_offset,
            partition_max_bytes=_FETCH_BYTES,
        )
        answer = await connection.request(
            FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=_FETCH_BYTES,
                topics=(FetchTopic(topic=topic, topic_id=topic_id, partitions=(wanted,)),),
            ),
            FetchResponse,
        )
        about = f"fetch of {self.partition} from {connection.address}"
        if answer.error_code:
            raise answered_error(answer.error_code, about)
        for found in answer.responses:
            for data in found.partitions:
                if data.error_code:
                    raise answered_error(data.error_code, about)
                return data
        raise answered_error(ErrorCode.REQUEST_TIMED_OUT, f"{about}: no answer yet")


def _whole_batches(data: PartitionData) -> Iterator[Batch]:
    """Yield the complete batches."""
    try:
        yield from batches(memoryview(data.records or b""))
    except IncompleteBatch:
        return
