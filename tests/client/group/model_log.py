"""A partition as simple as can be: the records in order, and the rules for idempotent producers."""

from __future__ import annotations

from dohle.core.errors import ErrorCode
from dohle.core.ids import ProducerId, TopicName
from dohle.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from dohle.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from dohle.records.batch import RecordBatch, sequence_after
from dohle.records.record import Record

REMEMBERED = 5


class ModelLog:
    """What a leader would have written, and how it would have answered."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.batches: list[RecordBatch] = []
        #: By producer id: epoch, and the last batches as (first sequence, last, base offset).
        self._producers: dict[int, tuple[int, list[tuple[int, int, int]]]] = {}

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records]

    def restart(self) -> None:
        """Forget all batches of a producer but the last, as snapshots of its state do."""
        for producer_id, (epoch, known) in self._producers.items():
            self._producers[producer_id] = epoch, known[-1:]

    def append(self, data: bytes | memoryview) -> tuple[ErrorCode, int]:
        """Check a batch like a leader does; return an error, or where it was written."""
        batch = RecordBatch(memoryview(bytes(data)))
        assert batch.size == len(data)
        batch.ensure_valid()
        if batch.producer_id < 0:
            return ErrorCode.NONE, self._write(batch)
        epoch, known = self._producers.get(batch.producer_id, (batch.producer_epoch, []))
        first, last = batch.base_sequence, batch.last_sequence
        if batch.producer_epoch < epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if batch.producer_epoch > epoch:
            epoch, known = batch.producer_epoch, []
            if first != 0:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        for seen_first, seen_last, base_offset in known:
            if (seen_first, seen_last) == (first, last):
                return ErrorCode.NONE, base_offset
        expected = sequence_after(known[-1][1], 1) if known else 0
        if first != expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        base_offset = self._write(batch)
        known = [*known, (first, last, base_offset)][-REMEMBERED:]
        self._producers[batch.producer_id] = (epoch, known)
        return ErrorCode.NONE, base_offset

    def _write(self, batch: RecordBatch) -> int:
        base_offset = len(self.records)
        self.batches.append(batch)
        self.records += batch
        return base_offset


class ModelPartitions:
    """The partitions of a scripted cluster, as handlers for Produce and InitProducerId."""

    def __init__(self) -> None:
        self.logs: dict[tuple[TopicName, int], ModelLog] = {}
        self.producer_ids = 0

    def log(self, topic: str, partition: int = 0) -> ModelLog:
        return self.logs.setdefault((TopicName(topic), partition), ModelLog())

    def produce(self, request: ProduceRequest, version: int) -> ProduceResponse:
        """Append everything."""
        topics = []
        for topic in request.topic_data:
            name = topic.name or topic.topic_id.rstrip(b"-").decode()
            partitions = []
            for data in topic.partition_data:
                assert data.records is not None
                code, base_offset = self.log(name, data.index).append(data.records)
                partitions.append(
                    PartitionProduceResponse(
                        index=data.index, error_code=code, base_offset=base_offset
                    )
                )
            topics.append(
                TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=tuple(partitions),
                )
            )
        return ProduceResponse(responses=tuple(topics))

    def init_producer_id(
        self, request: InitProducerIdRequest, version: int
    ) -> InitProducerIdResponse:
        """Give out the next id."""
        self.producer_ids += 1
        return InitProducerIdResponse(producer_id=ProducerId(self.producer_ids), producer_epoch=0)


def refusing(
    request: ProduceRequest, code: ErrorCode, message: str | None = None
) -> ProduceResponse:
    """Answer everything in a request with an error."""
    return ProduceResponse(
        responses=tuple(
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=tuple(
                    PartitionProduceResponse(
                        index=data.index, error_code=code, base_offset=-1, error_message=message
                    )
                    for data in topic.partition_data
                ),
            )
            for topic in request.topic_data
        )
    )
