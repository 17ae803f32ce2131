"""kafka-transactions."""

from __future__ import annotations

import pytest

from tests.jvm.conftest import NewName, NewTopic
from tests.jvm.jvm import Jvm
from tests.jvm.tools import Tools


@pytest.fixture
def open_transaction(
    tools: Tools, jvm: Jvm, new_topic: NewTopic, new_name: NewName
) -> tuple[str, str]:
    """The topic and the transactional id of a transaction on its partition 0."""
    topic, transactional_id = new_topic(2), new_name("id")
    ran = jvm.run("OpenTransaction", tools.bootstrap, topic, transactional_id)
    assert ran.code == 0, ran
    return topic, transactional_id


def test_an_open_transaction_is_listed_and_described(
    tools: Tools, open_transaction: tuple[str, str]
) -> None:
    topic, transactional_id = open_transaction
    (listed,) = [row for row in tools.transactions("list").table if row[0] == transactional_id]
    assert (listed[1], listed[3]) == ("1", "Ongoing")
    producer_id = listed[2]
    _, row = tools.transactions("describe", "--transactional-id", transactional_id).table
    assert row[:6] == ["1", transactional_id, producer_id, row[3], "Ongoing", "600000"]
    assert row[8] == f"{topic}-0"
    producers = tools.transactions("describe-producers", "--topic", topic, "--partition", "0")
    _, producer = producers.table
    assert producer[:2] == [producer_id, row[3]]
    assert (producer[3], producer[5]) == ("0", "0")


def test_no_transaction_of_a_live_coordinator_hangs(
    tools: Tools, open_transaction: tuple[str, str]
) -> None:
    ran = tools.transactions("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0")
    assert [row[0] for row in ran.table] == ["Topic"]


def test_a_transaction_is_aborted_on_one_partition(
    tools: Tools, open_transaction: tuple[str, str]
) -> None:
    topic, _ = open_transaction
    partition = ["--topic", topic, "--partition", "0"]
    tools.transactions("abort", *partition, "--start-offset", "0")
    _, producer = tools.transactions("describe-producers", *partition).table
    assert producer[5] == "None"
    assert tools.get_offsets("--topic", topic).lines == [f"{topic}:0:2", f"{topic}:1:0"]


def test_a_transaction_is_terminated_by_its_id(
    tools: Tools, open_transaction: tuple[str, str]
) -> None:
    _, transactional_id = open_transaction
    tools.transactions("forceTerminateTransaction", "--transactionalId", transactional_id)
    _, row = tools.transactions("describe", "--transactional-id", transactional_id).table
    assert row[4] == "Empty"
