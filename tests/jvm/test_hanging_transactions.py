"""kafka-transactions finds and ends transactions that their coordinator knows nothing of.

No client leaves one behind since brokers ask the coordinator first. A request by hand does, once
that is switched off.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import time_ns

import pytest

from dohle.core.ids import TopicName, TransactionalId
from dohle.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from dohle.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from dohle.records.builder import BatchBuilder
from tests.interop.waiting import wait_until
from tests.interop.wire import Wire
from tests.jvm.conftest import NewName, NewTopic
from tests.jvm.jvm import Jvm
from tests.jvm.tools import Tools

#: The last version by which a broker does not add partitions to a transaction by itself.
_PRODUCE_VERSION = 11
_HOUR_MS = 3_600_000
_RECORDS = 3


@pytest.fixture
def wire(tools: Tools) -> Iterator[Wire]:
    """A connection to a broker that does not ask coordinators."""
    alter = ["--alter", "--entity-type", "brokers", "--entity-name", "1"]
    tools.configs(*alter, "--add-config", "transaction.partition.verification.enable=false")
    with Wire(tools.bootstrap) as connection:
        yield connection
    tools.configs(*alter, "--delete-config", "transaction.partition.verification.enable")


def _write(wire: Wire, topic: str, partition: int, producer_id: int, producer_epoch: int) -> None:
    """Write records that are an hour old as those of a transaction."""
    builder = BatchBuilder(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    for number in range(_RECORDS):
        builder.append(time_ns() // 1_000_000 - _HOUR_MS, None, b"hanging %d" % number)
    data = PartitionProduceData(index=partition, records=bytes(builder.build()))
    request = ProduceRequest(
        transactional_id=TransactionalId("nobody"),
        acks=-1,
        timeout_ms=10_000,
        topic_data=(TopicProduceData(name=TopicName(topic), partition_data=(data,)),),
    )

    def is_written() -> bool:
        """Until the broker has heard of its new config it refuses."""
        reply = wire.ask(request, ProduceResponse, _PRODUCE_VERSION)
        return reply.responses[0].partition_responses[0].error_code == 0

    wait_until(is_written)


def _new_producer(wire: Wire) -> tuple[int, int]:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    answers: list[InitProducerIdResponse] = []

    def is_given() -> bool:
        answers.append(wire.ask(request, InitProducerIdResponse, 4))
        return answers[-1].error_code == 0

    wait_until(is_given)
    return answers[-1].producer_id, answers[-1].producer_epoch


def _hanging(tools: Tools, *arguments: str) -> list[list[str]]:
    _, *rows = tools.transactions("find-hanging", *arguments).table
    return rows


def _committed(tools: Tools, topic: str, records: int) -> list[str]:
    return tools.console_consumer(
        *("--topic", topic, "--from-beginning", "--isolation-level", "read_committed"),
        *("--max-messages", str(records)),
    ).lines


def test_a_transaction_of_an_unknown_producer_is_found_and_aborted(
    tools: Tools, wire: Wire, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    producer_id, producer_epoch = _new_producer(wire)
    tools.console_producer("--topic", topic, stdin="before\n")
    _write(wire, topic, 0, producer_id, producer_epoch)
    tools.console_producer("--topic", topic, stdin="after\n")
    data = wire.fetch(topic)
    assert (data.last_stable_offset, data.high_watermark) == (1, 2 + _RECORDS)
    assert _hanging(tools, "--topic", topic, "--max-transaction-timeout", "90") == []
    (found,) = _hanging(tools, "--broker-id", "1")
    assert found[:2] == [topic, "0"]
    assert found[2:6] == [str(producer_id), str(producer_epoch), "-1", "1"]
    assert found[7] == "60"

    partition = ["--topic", topic, "--partition", "0"]
    tools.transactions("abort", *partition, "--start-offset", found[5])
    data = wire.fetch(topic)
    assert data.last_stable_offset == data.high_watermark == 3 + _RECORDS
    assert _hanging(tools, "--broker-id", "1") == []
    _, *producers = tools.transactions("describe-producers", *partition).table
    assert {row[0]: row[5] for row in producers}[str(producer_id)] == "None"
    assert _committed(tools, topic, 2) == ["before", "after"]


def test_a_partition_that_the_coordinator_does_not_know_of_is_found_and_aborted(
    tools: Tools, wire: Wire, jvm: Jvm, new_topic: NewTopic, new_name: NewName
) -> None:
    topic, transactional_id = new_topic(2), new_name("id")
    assert jvm.run("OpenTransaction", tools.bootstrap, topic, transactional_id).code == 0
    describe = ["describe", "--transactional-id", transactional_id]
    _, (_, _, producer_id, producer_epoch, *known) = tools.transactions(*describe).table
    assert known[-1] == f"{topic}-0"
    _write(wire, topic, 1, int(producer_id), int(producer_epoch))
    assert wire.fetch(topic, partition=1).last_stable_offset == 0
    (found,) = _hanging(tools, "--topic", topic, "--max-transaction-timeout", "0")
    assert found[:4] == [topic, "1", producer_id, producer_epoch]

    tools.transactions(
        *("abort", "--topic", topic, "--partition", "1"),
        *("--producer-id", producer_id, "--producer-epoch", producer_epoch),
        *("--coordinator-epoch", "0"),
    )
    assert wire.fetch(topic, partition=1).last_stable_offset == _RECORDS + 1
    assert _hanging(tools, "--topic", topic, "--max-transaction-timeout", "0") == []
    assert wire.fetch(topic, partition=0).last_stable_offset == 0
    _, row = tools.transactions(*describe).table
    assert (row[4], row[-1]) == ("Ongoing", f"{topic}-0")
    tools.transactions("forceTerminateTransaction", "--transactionalId", transactional_id)
    assert wire.fetch(topic, partition=0).last_stable_offset == 2
