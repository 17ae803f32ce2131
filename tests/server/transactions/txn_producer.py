"""A transactional producer that sends what the test says, and what a test of transactions needs.

Nothing is retried, but where a method says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, GroupId, ProducerId, TopicName, TopicPartition, TransactionalId
from dohle.core.seams import SystemClock
from dohle.metadata.decision import VersionedRecord
from dohle.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from dohle.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from dohle.protocol.messages.end_txn import EndTxnRequest
from dohle.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from dohle.protocol.messages.init_producer_id import InitProducerIdRequest
from dohle.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from dohle.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from dohle.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from dohle.protocol.messages.records.cluster_metadata import (
    FeatureLevelRecord,
    PartitionChangeRecord,
)
from dohle.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from dohle.records.batch import batches
from dohle.records.builder import BatchBuilder
from dohle.records.compression.codecs import Codec
from dohle.records.control import parse_control
from dohle.server.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from dohle.server.node import Node
from dohle.storage.files import FileSystem
from dohle.storage.log import Log
from dohle.txn.state import TransactionState
from dohle.txn.transaction import Transaction
from tests.server.faults import until
from tests.server.wire import Wire, create_topic, running_node

#: Small, so that it is created fast.
PROPERTIES = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}
GROUP = "group"
#: The last versions of Produce that name topics: of transactions v2, and before.
V2, V1, V1_OLD = 12, 11, 10
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


async def start_transactions(node: Node) -> None:
    """Have everything that clients find when they have found their coordinator."""
    feature = FeatureLevelRecord(name="transaction.version", feature_level=2)
    await node.controller.write([VersionedRecord(feature, 0)])
    for topic in (TRANSACTION_STATE, CONSUMER_OFFSETS):
        await node.broker.coordinators.internal_topics.ensure(topic)


def transactional_batch(
    values: Iterable[bytes],
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    *,
    codec: Codec = Codec.NONE,
) -> bytes:
    """Return a batch of a transaction."""
    builder = BatchBuilder(
        codec=codec,
        producer_id=ProducerId(producer_id),
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=True,
    )
    # The marker will be of now, and a segment is not to end between them.
    now_ms = SystemClock().now_ms()
    for value in values:
        builder.append(now_ms, None, value)
    return bytes(builder.build())


def produce_request(
    transactional_id: str | None, data: Iterable[tuple[str, int, bytes]], acks: int = -1
) -> ProduceRequest:
    """Return a request with records for partitions."""
    return ProduceRequest(
        transactional_id=None if transactional_id is None else TransactionalId(transactional_id),
        acks=acks,
        timeout_ms=5_000,
        topic_data=tuple(
            TopicProduceData(
                name=TopicName(topic),
                partition_data=(PartitionProduceData(index=index, records=records),),
            )
            for topic, index, records in data
        ),
    )


class TxnProducer:
    """A producer with a transactional id, over a connection of its own."""

    def __init__(self, node: Node, wire: Wire, transactional_id: str) -> None:
        self._node = node
        self.wire = wire
        self.transactional_id = TransactionalId(transactional_id)
        self.producer_id = ProducerId(-1)
        self.producer_epoch = -1
        self.sequences: dict[TopicPartition, int] = {}

    async def init(self) -> TxnProducer:
        """Get a producer id and epoch, when what was open before is ended."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=60_000
        )
        while True:
            found = await self.wire.send(request)
            if found.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                break
        assert found.error_code == 0, found
        self._become(found.producer_id, found.producer_epoch)
        return self

    def resume(self, other: TxnProducer) -> None:
        """Go on as another, that was connected to a node which is gone."""
        self.producer_id, self.producer_epoch = other.producer_id, other.producer_epoch
        self.sequences = dict(other.sequences)

    def _become(self, producer_id: ProducerId, producer_epoch: int) -> None:
        if (self.producer_id, self.producer_epoch) != (producer_id, producer_epoch):
            self.sequences.clear()
        self.producer_id, self.producer_epoch = producer_id, producer_epoch

    def records(self, topic: str, index: int, *values: bytes, codec: Codec = Codec.NONE) -> bytes:
        """Return the next batch for a partition."""
        key = TopicPartition(TopicName(topic), index)
        sequence = self.sequences.get(key, 0)
        self.sequences[key] = sequence + len(values)
        return transactional_batch(
            values, self.producer_id, self.producer_epoch, sequence, codec=codec
        )

    async def send(
        self, topic: str, *values: bytes, index: int = 0, version: int = V2
    ) -> PartitionProduceResponse:
        """Write to one partition."""
        data = [(topic, index, self.records(topic, index, *values))]
        answer = await self.wire.send(produce_request(self.transactional_id, data), version)
        result: PartitionProduceResponse = answer.responses[0].partition_responses[0]
        return result

    async def add(self, *partitions: tuple[str, int]) -> None:
        """Add partitions to the transaction, as clients did before transactions v2."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=tuple(
                AddPartitionsToTxnTopic(name=TopicName(topic), partitions=(index,))
                for topic, index in partitions
            ),
        )
        answer = await self.wire.send(request, 3)
        for topic in answer.results_by_topic_v3_and_below:
            for partition in topic.results_by_partition:
                assert partition.partition_error_code == 0, answer

    async def add_offsets(self, group_id: str) -> None:
        """Add a group's offsets to the transaction, as clients did before transactions v2."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            group_id=GroupId(group_id),
        )
        answer = await self.wire.send(request, 3)
        assert answer.error_code == 0, answer

    async def end(self, *, commit: bool, version: int = 2) -> None:
        """Commit or abort, by transactions v2 or before; return when that is decided."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=commit,
        )
        found = await self.wire.send(request, 5 if version >= 2 else 4)
        assert found.error_code == 0, found
        if version >= 2:
            self._become(found.producer_id, found.producer_epoch)

    @property
    def state(self) -> TransactionState:
        """What the coordinator makes of the transaction."""
        return described(self._node, self.transactional_id).state

    async def ended(self, *, commit: bool, version: int = 2) -> None:
        """End the transaction, and return when all its markers are written."""
        await self.end(commit=commit, version=version)
        await until(lambda: self.state.is_complete)


async def commit_offset(producer: TxnProducer, topic: str, offset: int, version: int = 5) -> int:
    """Commit an offset of a group without members in the transaction; return the error code."""
    partition = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    request = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=GroupId(GROUP),
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        topics=(TxnOffsetCommitRequestTopic(name=TopicName(topic), partitions=(partition,)),),
    )
    answer = await producer.wire.send(request, version)
    return int(answer.topics[0].partitions[0].error_code)


async def committed_offset(
    wire: Wire, topic: str, *, require_stable: bool = False
) -> tuple[int, int]:
    """Return the group's offset and an error code."""
    topics = (OffsetFetchRequestTopics(name=TopicName(topic), partition_indexes=(0,)),)
    group = OffsetFetchRequestGroup(group_id=GroupId(GROUP), topics=topics)
    request = OffsetFetchRequest(groups=(group,), require_stable=require_stable)
    answer = await wire.send(request, 9)
    found = answer.groups[0].topics[0].partitions[0]
    return found.committed_offset, found.error_code


def described(node: Node, transactional_id: str) -> Transaction:
    """Return what the coordinator knows of a transactional id."""
    index = node.broker.transactions.partition_of(transactional_id)
    machines = dict(node.broker.transactions.active())
    assert index is not None
    found = machines[index].describe(transactional_id)
    assert found is not None
    return found


def log_of(node: Node, topic: str, index: int = 0) -> Log:
    """Return a partition's log."""
    partition = node.broker.partitions.get(topic, index)
    assert partition is not None
    return partition.log


async def lead(node: Node, topic: str, index: int = 0, *, is_led: bool) -> None:
    """Take a partition's leader away, or give it back."""
    image = node.broker.image.topic(TopicName(topic))
    assert image is not None
    record = PartitionChangeRecord(
        partition_id=index,
        topic_id=image.id,
        leader=node.config.node_id if is_led else BrokerId(-1),
    )
    await node.controller.write([VersionedRecord(record, 0)])


def fetch_request(
    topic: str,
    index: int = 0,
    *,
    isolation: int = READ_COMMITTED,
    offset: int = 0,
    wait_ms: int = 0,
) -> FetchRequest:
    """Ask for a partition's records."""
    partition = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=isolation,
        topics=(FetchTopic(topic=TopicName(topic), partitions=(partition,)),),
    )


async def fetch(wire: Wire, topic: str, index: int = 0, **options: int) -> PartitionData:
    """Fetch a partition."""
    answer = await wire.send(fetch_request(topic, index, **options), 12)
    found: PartitionData = answer.responses[0].partitions[0]
    assert found.error_code == 0
    return found


def committed_values(found: PartitionData) -> list[bytes | None]:
    """Return what a reader of committed records makes of an answer, as clients do it."""
    aborted = sorted(found.aborted_transactions or (), key=lambda txn: txn.first_offset)
    gone: set[int] = set()
    values: list[bytes | None] = []
    for batch in batches(found.records or b""):
        while aborted and aborted[0].first_offset <= batch.last_offset:
            gone.add(aborted.pop(0).producer_id)
        if batch.is_control:
            gone.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in gone):
            values += [record.value for record in batch.records()]
    return values


async def read_committed(wire: Wire, topic: str, index: int = 0) -> list[bytes | None]:
    """Read a partition as a reader of committed records."""
    return committed_values(await fetch(wire, topic, index))


async def markers(wire: Wire, topic: str, index: int = 0) -> list[str]:
    """Return the markers of a partition, in order."""
    found = await fetch(wire, topic, index, isolation=READ_UNCOMMITTED)
    return [
        parse_control(record)[0].name
        for batch in batches(found.records or b"")
        if batch.is_control
        for record in batch.records()
    ]


async def latest(wire: Wire, topic: str, isolation: int) -> int:
    """Return where a partition ends for a reader."""
    asked = ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = (ListOffsetsTopic(name=TopicName(topic), partitions=(asked,)),)
    consumer = BrokerId(-1)
    request = ListOffsetsRequest(replica_id=consumer, isolation_level=isolation, topics=topics)
    answer = await wire.send(request)
    return int(answer.topics[0].partitions[0].offset)


Scenario = Callable[[Node, Wire, TxnProducer], Awaitable[None]]
TOPICS = ("a", "b")


async def with_transactional_node(
    path: Path,
    scenario: Scenario,
    properties: Mapping[str, str] | None = None,
    fs: FileSystem | None = None,
) -> None:
    """Run a scenario against a node with two topics, and a producer that has its id."""
    settings = {**PROPERTIES, **(properties or {})}
    async with running_node(path, settings, fs=fs) as node, await Wire.connect(node) as wire:
        await start_transactions(node)
        for topic in TOPICS:
            await create_topic(wire, topic, partitions=2)
        await scenario(node, wire, await TxnProducer(node, wire, "tx").init())


def on_transactional_node(path: Path, scenario: Scenario, **properties: str) -> None:
    """Run a scenario against such a node."""
    asyncio.run(with_transactional_node(path, scenario, properties))
