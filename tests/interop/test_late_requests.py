"""Requests that arrive late: of an old incarnation, when a newer one has begun a transaction.

A proxy holds them back. Once delivered, an EndTxn must neither commit nor abort the newer
transaction, and a batch must neither get into it nor leave a transaction that never ends. What only
the second version of the protocol (KIP-890) makes sure of is tried with requests by hand: no client
here speaks it yet.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NamedTuple

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import ProducerId, TopicName, TransactionalId
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from dohle.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from dohle.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from dohle.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from dohle.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.interop.group_consumers import LIBRARIES, Joining, Place, joined
from tests.interop.holding_proxy import HoldingProxy
from tests.interop.process import BrokerProcess
from tests.interop.quick_broker import QUICK, fresh, new_topic, write
from tests.interop.transaction_readers import end_offset, is_stable, read_all
from tests.interop.txn_producers import Fenced, Producing, Refused, producing
from tests.interop.waiting import wait_until
from tests.interop.wire import Wire, batch_of
from tests.ports import free_port

KEY_TYPE_TRANSACTION = 1
FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HoldingProxy]:
    port = free_port()
    with HoldingProxy(port) as running:
        config = {**QUICK, "advertised.listeners": f"PLAINTEXT://{running.bootstrap}"}
        with BrokerProcess(tmp_path_factory.mktemp("late"), config, port=port) as broker:
            yield running
            assert broker.stop() == 0
            assert broker.failures == []


@pytest.fixture
def topic(proxy: HoldingProxy) -> str:
    return new_topic(proxy.bootstrap)


class Attempt:
    """Something that is tried in a thread, and what came of it."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.failure: Exception | None = None
        self._act = act
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._act()
        except Exception as error:
            self.failure = error

    def join(self) -> None:
        self._thread.join(30)
        assert not self._thread.is_alive()


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_late_end_of_an_old_incarnation_does_not_end_the_newer_transaction(
    is_commit: bool, library: str, proxy: HoldingProxy, topic: str
) -> None:
    name = fresh("id")
    with closing(producing(Producing(library, proxy.bootstrap, name, client_id="old"))) as old:
        old.begin()
        old.send(topic, b"old")
        proxy.hold("old", ApiKey.END_TXN)
        attempt = Attempt(old.commit if is_commit else old.abort)
        proxy.await_held()
        try:
            with closing(producing(Producing("confluent", proxy.bootstrap, name))) as new:
                new.begin()
                new.send(topic, b"new")
                first = end_offset(proxy.bootstrap, topic, committed=True)
                proxy.release()
                attempt.join()
                assert isinstance(attempt.failure, Fenced | Refused)
                # Still open: nothing of it can be read, and it takes more records.
                new.send(topic, b"newer")
                assert end_offset(proxy.bootstrap, topic, committed=True) == first
                assert read_all(proxy.bootstrap, topic, committed=True) == []
                new.commit()
        finally:
            proxy.release()
            attempt.join()
    wait_until(lambda: is_stable(proxy.bootstrap, topic))
    assert read_all(proxy.bootstrap, topic, committed=True) == [b"new", b"newer"]


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_late_batch_of_an_old_incarnation_is_not_written(
    library: str, proxy: HoldingProxy, topic: str
) -> None:
    name = fresh("id")
    with closing(producing(Producing(library, proxy.bootstrap, name, client_id="old"))) as old:
        old.begin()
        proxy.hold("old", ApiKey.PRODUCE)
        attempt = Attempt(lambda: old.send(topic, b"old"))
        proxy.await_held()
        try:
            with closing(producing(Producing("confluent", proxy.bootstrap, name))) as new:
                new.begin()
                new.send(topic, b"new")
                proxy.release()
                attempt.join()
                assert isinstance(attempt.failure, Fenced | Refused)
                new.commit()
        finally:
            proxy.release()
            attempt.join()
    wait_until(lambda: is_stable(proxy.bootstrap, topic))
    assert read_all(proxy.bootstrap, topic, committed=False) == [b"new"]
    assert read_all(proxy.bootstrap, topic, committed=True) == [b"new"]


@pytest.mark.parametrize("library", LIBRARIES)
def test_late_offsets_of_an_old_incarnation_are_not_committed(
    library: str, proxy: HoldingProxy, topic: str
) -> None:
    name, group, place = fresh("id"), fresh("group"), Place(topic, 0)
    write(proxy.bootstrap, topic, [b"0", b"1", b"2"])
    with (
        closing(producing(Producing(library, proxy.bootstrap, name, client_id="old"))) as old,
        closing(joined(Joining(library, proxy.bootstrap, group, (topic,)))) as consumer,
    ):
        wait_until(lambda: bool(consumer.poll()))
        old.begin()
        proxy.hold("old", ApiKey.TXN_OFFSET_COMMIT)
        attempt = Attempt(lambda: old.send_offsets({place: 1}, consumer, group))
        proxy.await_held()
        try:
            with closing(producing(Producing(library, proxy.bootstrap, name))) as new:
                new.begin()
                new.send_offsets({place: 2}, consumer, group)
                proxy.release()
                attempt.join()
                assert isinstance(attempt.failure, Fenced | Refused)
                new.commit()
        finally:
            proxy.release()
            attempt.join()
        wait_until(lambda: consumer.committed(place) == 2)


class Incarnation(NamedTuple):
    """A producer by hand, as it is during one transaction."""

    wire: Wire
    topic: str
    transactional_id: str
    producer_id: int
    epoch: int

    def produce(self, *values: bytes, sequence: int, version: int = 12) -> int:
        """Write a batch and return the error."""
        self.send_batch(*values, sequence=sequence, version=version)
        return self.receive_batch(version)

    def send_batch(self, *values: bytes, sequence: int, version: int = 12) -> None:
        batch = batch_of(
            *values,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        partition = PartitionProduceData(index=0, records=batch)
        topic = TopicProduceData(name=TopicName(self.topic), partition_data=(partition,))
        request = ProduceRequest(
            transactional_id=TransactionalId(self.transactional_id),
            acks=-1,
            timeout_ms=10_000,
            topic_data=(topic,),
        )
        self.wire.send(request, version)

    def receive_batch(self, version: int = 12) -> int:
        reply = self.wire.receive(ProduceResponse, version)
        return reply.responses[0].partition_responses[0].error_code

    def end(self, *, commit: bool, version: int = 5) -> EndTxnResponse:
        """Commit or abort."""
        request = EndTxnRequest(
            transactional_id=TransactionalId(self.transactional_id),
            producer_id=ProducerId(self.producer_id),
            producer_epoch=self.epoch,
            committed=commit,
        )
        while True:
            reply = self.wire.ask(request, EndTxnResponse, version)
            if reply.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                return reply

    def after(self, reply: EndTxnResponse) -> Incarnation:
        """Go on as the broker has said."""
        assert reply.error_code == 0
        return self._replace(producer_id=reply.producer_id, epoch=reply.producer_epoch)

    def add_partition(self) -> None:
        """Tell the coordinator, as producers of the first version do."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TransactionalId(self.transactional_id),
            v3_and_below_producer_id=ProducerId(self.producer_id),
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=(
                AddPartitionsToTxnTopic(name=TopicName(self.topic), partitions=(0,)),
            ),
        )
        while True:
            reply = self.wire.ask(request, AddPartitionsToTxnResponse, 3)
            (result,) = reply.results_by_topic_v3_and_below[0].results_by_partition
            if result.partition_error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                assert result.partition_error_code == 0
                return


def incarnation(wire: Wire, topic: str, transactional_id: str, timeout_ms: int) -> Incarnation:
    """Take over a transactional id."""
    asked = FindCoordinatorRequest(
        key_type=KEY_TYPE_TRANSACTION, coordinator_keys=(transactional_id,)
    )
    request = InitProducerIdRequest(
        transactional_id=TransactionalId(transactional_id), transaction_timeout_ms=timeout_ms
    )

    def is_found() -> bool:
        reply = wire.ask(asked, FindCoordinatorResponse, 4)
        return reply.coordinators[0].error_code == 0

    wait_until(is_found)
    while True:
        reply = wire.ask(request, InitProducerIdResponse, 4)
        if reply.error_code not in (
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.NOT_COORDINATOR,
        ):
            break
    assert reply.error_code == 0
    return Incarnation(wire, topic, transactional_id, reply.producer_id, reply.producer_epoch)


@pytest.fixture
def wire(proxy: HoldingProxy) -> Iterator[Wire]:
    with Wire(proxy.bootstrap) as connection:
        yield connection


@pytest.fixture
def first(wire: Wire, topic: str) -> Incarnation:
    return incarnation(wire, topic, fresh("id"), 60_000)


@pytest.fixture
def late_wire(proxy: HoldingProxy) -> Iterator[Wire]:
    """Another connection, whose requests arrive late."""
    with Wire(proxy.bootstrap) as connection:
        yield connection


def test_every_transaction_has_an_epoch_of_its_own(first: Incarnation) -> None:
    current = first
    for number in range(3):
        assert current.produce(b"%d" % number, sequence=0) == 0
        following = current.after(current.end(commit=True))
        assert (following.producer_id, following.epoch) == (first.producer_id, number + 1)
        current = following


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_late_end_of_the_transaction_before_does_not_end_this_one(
    is_commit: bool, first: Incarnation, late_wire: Wire, proxy: HoldingProxy, topic: str
) -> None:
    """The same producer: it had lost patience, and asked again on another connection."""
    assert first.produce(b"first", sequence=0) == 0
    late = first._replace(wire=late_wire)
    proxy.hold("wire", ApiKey.END_TXN)
    replies: list[EndTxnResponse] = []
    attempt = Attempt(lambda: replies.append(late.end(commit=is_commit)))
    proxy.await_held()
    try:
        second = first.after(first.end(commit=is_commit))
        assert second.produce(b"second", sequence=0) == 0
        stable = end_offset(proxy.bootstrap, topic, committed=True)
    finally:
        proxy.release()
    attempt.join()
    (reply,) = replies
    assert reply.error_code in FENCED
    assert end_offset(proxy.bootstrap, topic, committed=True) == stable
    second.after(second.end(commit=True))
    wait_until(lambda: is_stable(proxy.bootstrap, topic))
    before = [b"first"] if is_commit else []
    assert read_all(proxy.bootstrap, topic, committed=True) == [*before, b"second"]


def test_a_late_batch_of_the_transaction_before_does_not_get_into_this_one(
    first: Incarnation, late_wire: Wire, proxy: HoldingProxy, topic: str
) -> None:
    assert first.produce(b"first", sequence=0) == 0
    late = first._replace(wire=late_wire)
    proxy.hold("wire", ApiKey.PRODUCE)
    late.send_batch(b"late", sequence=1)
    proxy.await_held()
    try:
        second = first.after(first.end(commit=False))
        assert second.produce(b"second", sequence=0) == 0
    finally:
        proxy.release()
    assert late.receive_batch() in FENCED
    second.after(second.end(commit=True))
    wait_until(lambda: is_stable(proxy.bootstrap, topic))
    assert read_all(proxy.bootstrap, topic, committed=False) == [b"first", b"second"]
    assert read_all(proxy.bootstrap, topic, committed=True) == [b"second"]


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_late_batch_leaves_no_transaction_open_when_there_is_none(
    is_commit: bool, first: Incarnation, late_wire: Wire, proxy: HoldingProxy, topic: str
) -> None:
    assert first.produce(b"first", sequence=0) == 0
    late = first._replace(wire=late_wire)
    proxy.hold("wire", ApiKey.PRODUCE)
    late.send_batch(b"late", sequence=1)
    proxy.await_held()
    try:
        first.after(first.end(commit=is_commit))
        wait_until(lambda: is_stable(proxy.bootstrap, topic))
    finally:
        proxy.release()
    assert late.receive_batch() in FENCED
    assert is_stable(proxy.bootstrap, topic)
    write(proxy.bootstrap, topic, [b"behind it"])
    assert read_all(proxy.bootstrap, topic, committed=True)[-1] == b"behind it"


def test_a_late_batch_of_a_transaction_that_took_too_long_is_not_written(
    wire: Wire, late_wire: Wire, proxy: HoldingProxy, topic: str
) -> None:
    hurried = incarnation(wire, topic, fresh("id"), 500)
    assert hurried.produce(b"first", sequence=0) == 0
    late = hurried._replace(wire=late_wire)
    proxy.hold("wire", ApiKey.PRODUCE)
    late.send_batch(b"late", sequence=1)
    proxy.await_held()
    try:
        wait_until(lambda: is_stable(proxy.bootstrap, topic))
    finally:
        proxy.release()
    assert late.receive_batch() in FENCED
    assert is_stable(proxy.bootstrap, topic)
    assert hurried.end(commit=True).error_code == ErrorCode.INVALID_TXN_STATE
    assert read_all(proxy.bootstrap, topic, committed=False) == [b"first"]
    assert read_all(proxy.bootstrap, topic, committed=True) == []


@pytest.mark.parametrize(
    ("version", "error"),
    [(10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)],
)
def test_a_late_first_batch_of_the_older_protocol_leaves_no_transaction_open(
    version: int,
    error: ErrorCode,
    first: Incarnation,
    late_wire: Wire,
    proxy: HoldingProxy,
    topic: str,
) -> None:
    """There the epoch stays the same: the partition has to ask the coordinator."""
    late = first._replace(wire=late_wire)
    first.add_partition()
    proxy.hold("wire", ApiKey.PRODUCE)
    late.send_batch(b"late", sequence=0, version=version)
    proxy.await_held()
    try:
        assert first.end(commit=False, version=4).error_code == 0
        wait_until(lambda: is_stable(proxy.bootstrap, topic))
    finally:
        proxy.release()
    assert late.receive_batch(version) == error
    assert is_stable(proxy.bootstrap, topic)
    assert read_all(proxy.bootstrap, topic, committed=False) == []


def test_an_end_asked_for_twice_is_answered_twice(first: Incarnation, topic: str) -> None:
    """A retry, because the answer was lost, before the producer went on."""
    assert first.produce(b"first", sequence=0) == 0
    second = first.after(first.end(commit=True))
    again = first.after(first.end(commit=True))
    assert again == second
    refused = first.end(commit=False)
    assert refused.error_code == ErrorCode.INVALID_TXN_STATE
    assert second.produce(b"second", sequence=0) == 0
    second.after(second.end(commit=True))
