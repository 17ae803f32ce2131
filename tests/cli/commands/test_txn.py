from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

import dohle.client
from tests.cli.running import Command

TIMEOUT_S = 30


@pytest.fixture
def name(command: Command) -> str:
    """A topic, and a transactional id of the same name."""
    made = f"payments-{uuid.uuid4().hex}"
    command.out("topic", "create", made)
    return made


@pytest.fixture
def open_transaction(bootstrap: str, name: str) -> Iterator[Producer]:
    """A producer with one record in a transaction that it has not ended."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(name, b"1", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    yield producer
    producer.purge()


def described(command: Command, name: str) -> dict[str, Any]:
    (found,) = command.json("txn", "describe", name)
    return found


def values(command: Command, name: str) -> str:
    return command.run("consume", name, "-e", "--isolation-level", "read_committed")[0]


def test_an_open_transaction_is_listed_and_described(
    command: Command, name: str, open_transaction: Producer
) -> None:
    found = described(command, name)
    assert (found["state"], found["partitions"]) == ("Ongoing", [f"{name}-0"])
    assert found["coordinator"] == 1
    assert found["startTimeMs"] > 0
    assert found["durationMs"] >= 0
    row = {
        "transactionalId": name,
        "producerId": found["producerId"],
        "state": "Ongoing",
        "coordinator": 1,
    }
    assert row in command.json("txn", "list")
    assert command.json("txn", "list", "--pattern", name) == [row]
    assert command.json("txn", "list", "--producer-id", str(found["producerId"])) == [row]
    assert row in command.json("txn", "list", "--state", "Ongoing")
    assert row not in command.json("txn", "list", "--state", "CompleteCommit")
    assert row not in command.json("txn", "list", "--running-longer-than", "3600000")
    head, line = command.out("txn", "describe", name).splitlines()
    assert head.split()[:2] == ["transactionalId", "coordinator"]
    assert line.split()[-1] == f"{name}-0"
    open_transaction.commit_transaction(TIMEOUT_S)
    assert described(command, name)["durationMs"] is None
    assert values(command, name) == "1\n"


def test_a_two_phase_transaction_is_marked_and_can_be_aborted(
    command: Command, bootstrap: str, name: str
) -> None:
    async def prepare() -> None:
        config = dohle.client.ProducerConfig(
            transactional_id=name, transaction_two_phase_commit_enable=True
        )
        async with (
            dohle.client.Cluster(bootstrap) as cluster,
            dohle.client.Producer(cluster, config) as producer,
        ):
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.send_soon(name, b"1", partition=0)
            await producer.prepare_transaction()

    asyncio.run(prepare())
    found = described(command, name)
    assert (found["twoPhase"], found["timeoutMs"]) == (True, 2**31 - 1)
    head, line = command.out("txn", "describe", name).splitlines()
    assert line.split()[head.split().index("twoPhase")] == "yes"
    assert command.out("txn", "abort", name).startswith(f"{name}: aborted")
    assert described(command, name)["twoPhase"] is False
    assert values(command, name) == ""


def test_a_transaction_is_aborted_by_its_id_and_its_producer_shut_out(
    command: Command, name: str, open_transaction: Producer
) -> None:
    before = described(command, name)
    assert command.out("txn", "abort", name).startswith(f"{name}: aborted")
    after = described(command, name)
    assert after["state"] != "Ongoing"
    assert after["producerEpoch"] > before["producerEpoch"]
    assert values(command, name) == ""
    assert "has no open transaction" in command.error("txn", "abort", name)


def test_a_hanging_transaction_is_aborted_by_where_it_began(
    command: Command, name: str, open_transaction: Producer
) -> None:
    (producer,) = command.json("txn", "producers", name)
    assert producer["currentTxnStartOffset"] == 0
    error = command.error("txn", "abort", "--partition", f"{name}:0", "--start-offset", "5")
    assert "no transaction" in error
    (aborted,) = command.json("txn", "abort", "--partition", f"{name}:0", "--start-offset", "0")
    assert aborted["producerId"] == producer["producerId"]
    assert aborted["result"] == "aborted"
    (producer,) = command.json("txn", "producers", f"{name}:0")
    assert producer["currentTxnStartOffset"] == -1
    assert values(command, name) == ""


def test_what_is_not_there_is_said_to_be_missing(command: Command) -> None:
    expected = "there is no transactional id nobody; `dohle txn list` shows all"
    assert expected in command.error("txn", "describe", "nobody")
    assert expected in command.error("txn", "abort", "nobody")
    assert "there is no topic" in command.error("txn", "producers", "no-such-topic")
    assert "unknown transaction states" in command.error("txn", "list", "--state", "Asleep")


@pytest.mark.parametrize(
    "arguments",
    [
        ["txn"],
        ["txn", "describe"],
        ["txn", "abort"],
        ["txn", "abort", "id", "--partition", "t:0", "--start-offset", "1"],
        ["txn", "abort", "--partition", "t:0"],
        ["txn", "abort", "--partition", "t", "--start-offset", "1"],
        ["txn", "abort", "--partition", "t:0,1", "--start-offset", "1"],
        ["txn", "abort", "--start-offset", "1"],
        ["txn", "list", "--running-longer-than", "long"],
    ],
)
def test_a_wrong_command_line_is_not_sent_anywhere(command: Command, arguments: list[str]) -> None:
    _, err = command.run(*arguments, code=2)
    assert "error:" in err
