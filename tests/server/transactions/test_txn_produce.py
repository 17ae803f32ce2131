"""Producing in a transaction: what a partition asks the coordinator, and what it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName, TopicPartition
from dohle.protocol.messages.api_versions import ApiVersionsRequest
from dohle.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from dohle.protocol.messages.produce import ProduceRequest, ProduceResponse
from dohle.records.compression.codecs import Codec
from dohle.server.internal_topics import TRANSACTION_STATE
from dohle.server.node import Node
from dohle.server.transactions.claims import (
    ClientSupport,
    TransactionClaim,
    TransactionCoordinators,
)
from dohle.server.transactions.coordinators import ClusterCoordinators
from dohle.server.transactions.verification import TxnVerification, produce_error
from dohle.storage.producers.append import NO_VERIFICATION
from dohle.txn.state import TransactionState
from tests.server.faults import until
from tests.server.transactions.txn_producer import (
    V1,
    V1_OLD,
    V2,
    TxnProducer,
    described,
    lead,
    log_of,
    on_transactional_node,
    produce_request,
    read_committed,
    transactional_batch,
)
from tests.server.wire import Wire, batch, create_topic, produce


def codes(answer: ProduceResponse) -> list[int]:
    return [
        partition.error_code
        for topic in answer.responses
        for partition in topic.partition_responses
    ]


def end_offset(node: Node, topic: str, index: int = 0) -> int:
    return log_of(node, topic, index).log_end_offset


def coordinator_writes(node: Node) -> int:
    return sum(end_offset(node, TRANSACTION_STATE, index) for index in range(2))


# The request


@pytest.mark.parametrize("version", [3, V1, V2])
def test_transactional_records_need_a_transactional_id(tmp_path: Path, version: int) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        records = producer.records("a", 0, b"x")
        request = produce_request(None, [("b", 0, batch(b"plain")), ("a", 0, records)])
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert codes(await wire.send(request, version)) == [refused, refused]
        assert end_offset(node, "a") == end_offset(node, "b") == 0

    on_transactional_node(tmp_path, scenario)


def test_the_short_way_takes_no_transactional_records_without_an_id_either(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        assert (await producer.send("a", b"x")).error_code == 0
        for _ in range(2):
            assert (await produce(wire, "a", batch(b"plain"))).error_code == 0
        for codec in (Codec.NONE, Codec.GZIP):
            records = producer.records("a", 0, b"y", codec=codec)
            found = await produce(wire, "a", records)
            assert found.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert end_offset(node, "a") == 3

    on_transactional_node(tmp_path, scenario)


def test_with_acks_0_the_connection_is_closed(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        request = produce_request(None, [("a", 0, producer.records("a", 0, b"x"))], acks=0)
        await wire.post(request, V2)
        assert await wire.is_closed()

    on_transactional_node(tmp_path, scenario)


@pytest.mark.parametrize(("producer_id", "epoch"), [(0, 1), (1, 0)])
def test_a_request_has_transactional_records_of_one_producer(
    tmp_path: Path, producer_id: int, epoch: int
) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        other = transactional_batch(
            [b"y"], producer.producer_id + producer_id, producer.producer_epoch + epoch, 0
        )
        data = [("a", 0, producer.records("a", 0, b"x")), ("b", 0, other), ("a", 1, batch(b"z"))]
        refused = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        answer = await wire.send(produce_request("tx", data), V2)
        assert codes(answer) == [refused, refused, refused]
        assert end_offset(node, "a", 1) == 0

    on_transactional_node(tmp_path, scenario)


def test_records_without_a_producer_or_of_no_partition_do_not_count_as_another_producer(
    tmp_path: Path,
) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        data = [
            ("a", 0, producer.records("a", 0, b"x")),
            ("nowhere", 0, transactional_batch([b"y"], 999, 0, 0)),
            ("b", 0, batch(b"plain")),
        ]
        answer = await wire.send(produce_request("tx", data), V2)
        assert codes(answer) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]

    on_transactional_node(tmp_path, scenario)


@pytest.mark.parametrize(
    ("topic", "acks", "code"),
    [
        ("a", 7, ErrorCode.INVALID_REQUIRED_ACKS),
        (TRANSACTION_STATE, -1, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_what_cannot_be_written_anyway_does_not_join_the_transaction(
    tmp_path: Path, topic: str, acks: int, code: ErrorCode
) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        data = [(topic, 0, producer.records(topic, 0, b"x"))]
        assert codes(await wire.send(produce_request("tx", data, acks), V2)) == [code]
        assert producer.state is TransactionState.EMPTY

    on_transactional_node(tmp_path, scenario)


# The question


ADDS, ABORTABLE, OLD = (ClientSupport.of_produce(version) for version in (V2, V1, V1_OLD))


@pytest.mark.parametrize("support", [ADDS, ABORTABLE, OLD])
def test_what_is_wrong_on_the_way_to_the_coordinator_is_retried_by_every_producer(
    support: ClientSupport,
) -> None:
    for code in (
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    ):
        assert produce_error(code, support).code is ErrorCode.NOT_ENOUGH_REPLICAS
    for code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        assert produce_error(code, support).code is code
    concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
    expected = concurrent if support is ADDS else ErrorCode.NOT_ENOUGH_REPLICAS
    assert produce_error(concurrent, support).code is expected


def test_under_v2_the_first_write_adds_the_partition(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        data = [("a", 0, producer.records("a", 0, b"x")), ("b", 1, producer.records("b", 1, b"y"))]
        before = coordinator_writes(node)
        assert codes(await wire.send(produce_request("tx", data), V2)) == [0, 0]
        assert coordinator_writes(node) == before + 1
        transaction = described(node, "tx")
        assert transaction.state is TransactionState.ONGOING
        assert transaction.partitions == {
            TopicPartition(TopicName("a"), 0),
            TopicPartition(TopicName("b"), 1),
        }

    on_transactional_node(tmp_path, scenario)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_what_follows_needs_no_question(tmp_path: Path, codec: Codec) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        assert (await producer.send("a", b"first")).error_code == 0
        before = coordinator_writes(node)
        for number in range(4):
            records = producer.records("a", 0, b"x%d" % number, codec=codec)
            answer = await wire.send(produce_request("tx", [("a", 0, records)]), V2)
            assert codes(answer) == [0]
            assert answer.responses[0].partition_responses[0].base_offset == 1 + number
        assert coordinator_writes(node) == before
        assert await read_committed(wire, "a") == []
        await producer.ended(commit=True)
        assert await read_committed(wire, "a") == [b"first", b"x0", b"x1", b"x2", b"x3"]

    on_transactional_node(tmp_path, scenario)


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (3, ErrorCode.INVALID_TXN_STATE),
        (V1_OLD, ErrorCode.INVALID_TXN_STATE),
        (V1, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_before_v2_a_partition_must_have_been_added(
    tmp_path: Path, version: int, code: ErrorCode
) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        await producer.add(("b", 0))
        assert (await producer.send("a", b"x", version=version)).error_code == code
        assert end_offset(node, "a") == 0
        await producer.add(("a", 0))
        producer.sequences.clear()
        assert (await producer.send("a", b"x", version=version)).error_code == 0
        await producer.ended(commit=True, version=0)
        assert await read_committed(wire, "a") == [b"x"]

    on_transactional_node(tmp_path, scenario)


def test_one_partition_s_refusal_is_not_the_others_(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        await producer.add(("a", 0))
        data = [(topic, 0, producer.records(topic, 0, b"x")) for topic in "ab"]
        answer = await wire.send(produce_request("tx", data), V1)
        assert codes(answer) == [0, ErrorCode.TRANSACTION_ABORTABLE]

    on_transactional_node(tmp_path, scenario)


def test_verification_can_be_switched_off_for_older_clients(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        name = "transaction.partition.verification.enable"
        for enabled, code in (("false", 0), ("true", ErrorCode.TRANSACTION_ABORTABLE)):
            configs = (AlterableConfig(name=name, value=enabled),)
            resource = AlterConfigsResource(resource_type=4, resource_name="", configs=configs)
            answer = await wire.send(IncrementalAlterConfigsRequest(resources=(resource,)))
            assert answer.responses[0].error_code == 0
            topic = "a" if enabled == "false" else "b"
            assert (await producer.send(topic, b"x", version=V1)).error_code == code
        assert described(node, "tx").state is TransactionState.EMPTY

    on_transactional_node(tmp_path, scenario)


def test_v2_asks_whatever_is_switched_off(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        assert (await producer.send("a", b"x")).error_code == 0
        assert described(node, "tx").state is TransactionState.ONGOING

    switched_off = {"transaction.partition.verification.enable": "false"}
    on_transactional_node(tmp_path, scenario, **switched_off)


@pytest.mark.parametrize("version", [V1, V2])
def test_a_producer_that_the_coordinator_does_not_know_is_refused(
    tmp_path: Path, version: int
) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        data = [("a", 0, transactional_batch([b"x"], producer.producer_id, 0, 0))]
        assert codes(await wire.send(produce_request("stranger", data), version)) == [unknown]
        data = [("a", 0, transactional_batch([b"x"], producer.producer_id + 1, 0, 0))]
        assert codes(await wire.send(produce_request("tx", data), version)) == [unknown]
        data = [("a", 0, transactional_batch([b"x"], producer.producer_id, 1, 0))]
        fenced = ErrorCode.INVALID_PRODUCER_EPOCH
        assert codes(await wire.send(produce_request("tx", data), version)) == [fenced]
        assert end_offset(node, "a") == 0

    on_transactional_node(tmp_path, scenario)


@pytest.mark.parametrize("version", [V1, V2])
def test_that_there_is_no_coordinator_is_an_error_that_producers_retry(
    tmp_path: Path, version: int
) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        for index in range(2):
            await lead(node, TRANSACTION_STATE, index, is_led=False)
        answer = await producer.send("a", b"x", version=version)
        assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert "COORDINATOR_NOT_AVAILABLE" in (answer.error_message or "")

    on_transactional_node(tmp_path, scenario)


def test_a_partition_without_a_leader_asks_nobody(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        await lead(node, "a", is_led=False)
        before = coordinator_writes(node)
        assert (await producer.send("a", b"x")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert coordinator_writes(node) == before

    on_transactional_node(tmp_path, scenario)


class SlowCoordinators:
    """A way to the coordinator on which answers are held up."""

    def __init__(self, inner: TransactionCoordinators) -> None:
        self._inner = inner
        self.agreed = asyncio.Event()
        self.release = asyncio.Event()

    async def add_or_verify(
        self, transaction: TransactionClaim, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        answer = await self._inner.add_or_verify(transaction, partitions)
        self.agreed.set()
        await self.release.wait()
        return answer


# The transaction before


def test_h15_while_the_transaction_before_ends_v2_waits_a_little_and_then_says_so(
    tmp_path: Path,
) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        for topic in "ab":
            assert (await producer.send(topic, b"first")).error_code == 0
        await lead(node, "b", is_led=False)
        await producer.end(commit=True)
        assert producer.state is TransactionState.PREPARE_COMMIT
        refused = await producer.send("a", b"second")
        assert refused.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        producer.sequences.clear()
        refused = await producer.send("a", b"second", version=V1)
        assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS

    short = {"add.partitions.to.txn.retry.backoff.max.ms": "40"}
    on_transactional_node(tmp_path, scenario, **short)


def test_v2_goes_on_as_soon_as_the_transaction_before_has_ended(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        for topic in "ab":
            assert (await producer.send(topic, b"first")).error_code == 0
        await lead(node, "b", is_led=False)
        await producer.end(commit=True)
        sending = asyncio.create_task(producer.send("a", b"second"))
        state = log_of(node, "a").producer_state
        await until(lambda: state.verification_guard(producer.producer_id) != NO_VERIFICATION)
        assert not sending.done()
        await lead(node, "b", is_led=True)
        assert (await sending).error_code == 0
        await producer.ended(commit=True)
        assert await read_committed(wire, "a") == [b"first", b"second"]

    patient = {
        "add.partitions.to.txn.retry.backoff.ms": "1",
        "add.partitions.to.txn.retry.backoff.max.ms": "15000",
    }
    on_transactional_node(tmp_path, scenario, **patient)


def test_requests_in_a_row_keep_their_order_over_many_transactions(tmp_path: Path) -> None:
    """Each transaction's first request waits for the coordinator; those behind it wait for it."""

    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        expected = []
        for transaction in range(5):
            for number in range(10):
                value = b"%d-%d" % (transaction, number)
                expected.append(value)
                data = [("a", 0, producer.records("a", 0, value))]
                await wire.post(produce_request("tx", data), V2)
            for number in range(10):
                answer = await wire.answer(ProduceRequest.API_KEY, V2)
                assert codes(answer) == [0]
                found = answer.responses[0].partition_responses[0].base_offset
                assert found == transaction * 11 + number
            await producer.ended(commit=True)
        assert await read_committed(wire, "a") == expected

    on_transactional_node(tmp_path, scenario)


def test_what_arrives_while_a_request_waits_leaves_its_records_alone(tmp_path: Path) -> None:
    """The records are still in the buffer that the connection reads into."""

    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        coordinators = SlowCoordinators(ClusterCoordinators(node.broker))
        node.broker.txn_verification = TxnVerification(node.broker, coordinators)
        sizes = (10, 50_000, 300_000, 3_000, 200_000)
        expected = [b"%d" % number * size for number, size in enumerate(sizes)]
        for number, value in enumerate(expected):
            data = [("a", 0, producer.records("a", 0, value))]
            await wire.post(produce_request("tx", data), V2)
            if number == 0:
                await coordinators.agreed.wait()
        # A connection of its own that is answered later shows that all has been received.
        async with await Wire.connect(node) as other:
            for _ in range(20):
                await other.send(ApiVersionsRequest(), 0)
        coordinators.release.set()
        for _ in expected:
            assert codes(await wire.answer(ProduceRequest.API_KEY, V2)) == [0]
        await producer.ended(commit=True)
        assert await read_committed(wire, "a") == expected

    on_transactional_node(tmp_path, scenario)


# Late records


def test_late_records_of_an_old_incarnation_are_refused(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        assert (await producer.send("a", b"old")).error_code == 0
        late_here = producer.records("a", 0, b"late")
        late_elsewhere = producer.records("b", 0, b"late")
        newer = await TxnProducer(node, wire, "tx").init()
        assert (await newer.send("a", b"new")).error_code == 0
        for topic, records in (("a", late_here), ("b", late_elsewhere)):
            answer = await wire.send(produce_request("tx", [(topic, 0, records)]), V2)
            assert codes(answer) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        await newer.ended(commit=True)
        assert await read_committed(wire, "a") == [b"new"]
        assert end_offset(node, "b") == 0

    on_transactional_node(tmp_path, scenario)


def test_h14_under_v2_late_records_do_not_join_the_next_transaction(tmp_path: Path) -> None:
    """Before v2 the next transaction has the same epoch, so that nobody can tell."""

    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        assert (await producer.send("a", b"one")).error_code == 0
        late = producer.records("a", 0, b"late")
        await producer.ended(commit=False)
        assert (await producer.send("a", b"two")).error_code == 0
        answer = await wire.send(produce_request("tx", [("a", 0, late)]), V2)
        assert codes(answer) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        await producer.ended(commit=True)
        assert await read_committed(wire, "a") == [b"two"]

    on_transactional_node(tmp_path, scenario)


@pytest.mark.parametrize(
    ("version", "transaction_version", "code"),
    [(V1, 0, ErrorCode.INVALID_TXN_STATE), (V2, 2, ErrorCode.INVALID_PRODUCER_EPOCH)],
)
def test_an_abort_between_question_and_append_is_noticed(
    tmp_path: Path, version: int, transaction_version: int, code: ErrorCode
) -> None:
    """The coordinator has agreed, the marker comes, and only then the append."""

    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        if version < V2:
            await producer.add(("a", 0))
        coordinators = SlowCoordinators(ClusterCoordinators(node.broker))
        node.broker.txn_verification = TxnVerification(node.broker, coordinators)
        async with await Wire.connect(node) as other:
            sender = TxnProducer(node, other, "tx")
            sender.producer_id, sender.producer_epoch = producer.producer_id, 0
            sending = asyncio.create_task(sender.send("a", b"late", version=version))
            await coordinators.agreed.wait()
            await producer.ended(commit=False, version=transaction_version)
            coordinators.release.set()
            assert (await sending).error_code == code
        assert end_offset(node, "a") == 1

    on_transactional_node(tmp_path, scenario)


def test_a_partition_that_comes_while_the_coordinator_is_asked_is_not_written(
    tmp_path: Path,
) -> None:
    """It was not asked about. The producer is told what it tries again, not to abort."""

    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        coordinators = SlowCoordinators(ClusterCoordinators(node.broker))
        node.broker.txn_verification = TxnVerification(node.broker, coordinators)
        async with await Wire.connect(node) as other:
            data = [(topic, 0, producer.records(topic, 0, b"x")) for topic in ("a", "new")]
            sending = asyncio.create_task(other.send(produce_request("tx", data), V2))
            await coordinators.agreed.wait()
            await create_topic(wire, "new", partitions=1)
            coordinators.release.set()
            codes = [topic.partition_responses[0].error_code for topic in (await sending).responses]
            assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            # What the producer sends again joins the transaction.
            again = await other.send(produce_request("tx", data[1:]), V2)
            assert again.responses[0].partition_responses[0].error_code == 0

    on_transactional_node(tmp_path, scenario)
