"""Transactions with other people's producers, and what readers of both kinds see of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.interop.clients import CLIENTS, Reading
from tests.interop.group_consumers import LIBRARIES, GroupConsumer, Joining, Place, joined
from tests.interop.process import BrokerProcess
from tests.interop.quick_broker import QUICK, fresh, new_topic, serving, write
from tests.interop.transaction_readers import end_offset, is_stable, read_all
from tests.interop.txn_producers import Fenced, Producing, Refused, TxnProducer, producing
from tests.interop.waiting import wait_until
from tests.ports import free_port


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("transactions")) as broker:
        yield broker.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    return new_topic(bootstrap, 2)


@pytest.fixture(params=LIBRARIES)
def how(request: pytest.FixtureRequest, bootstrap: str) -> Producing:
    return Producing(request.param, bootstrap, fresh("transactional-id"))


@pytest.fixture
def producer(how: Producing) -> Iterator[TxnProducer]:
    with closing(producing(how)) as open_producer:
        yield open_producer


def test_committed_records_appear_and_aborted_ones_do_not(
    producer: TxnProducer, bootstrap: str, topic: str
) -> None:
    producer.begin()
    producer.send(topic, b"committed 0", 0)
    producer.send(topic, b"committed 1", 1)
    assert read_all(bootstrap, topic, committed=True) == []
    assert read_all(bootstrap, topic, committed=False) == [b"committed 0"]
    producer.commit()
    producer.begin()
    producer.send(topic, b"aborted", 0)
    producer.abort()
    producer.begin()
    producer.send(topic, b"committed 2", 0)
    producer.commit()

    wait_until(
        lambda: read_all(bootstrap, topic, committed=True) == [b"committed 0", b"committed 2"]
    )
    wait_until(lambda: read_all(bootstrap, topic, 1, committed=True) == [b"committed 1"])
    assert read_all(bootstrap, topic, committed=False) == [
        b"committed 0",
        b"aborted",
        b"committed 2",
    ]


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_client_skips_what_was_aborted(library: str, bootstrap: str, topic: str) -> None:
    how = Producing("confluent", bootstrap, fresh("transactional-id"))
    with closing(producing(how)) as producer:
        for number in range(10):
            producer.begin()
            producer.send(topic, b"%d" % number)
            producer.send(topic, b"%d" % number)
            if number % 3:
                producer.abort()
            else:
                producer.commit()
    (client,) = [each for each in CLIENTS if each.name == library]

    def values(*, committed: bool, count: int) -> list[bytes | None]:
        how = Reading(committed=committed)
        return [read.sample.value for read in client.read(bootstrap, topic, count, how)]

    expected = [b"%d" % number for number in (0, 0, 3, 3, 6, 6, 9, 9)]
    wait_until(lambda: values(committed=True, count=8) == expected)
    assert values(committed=False, count=20) == [b"%d" % (n // 2) for n in range(20)]


def test_a_reader_of_committed_records_waits_for_open_transactions(
    bootstrap: str, topic: str
) -> None:
    with (
        closing(producing(Producing("aiokafka", bootstrap, fresh("id")))) as slow,
        closing(producing(Producing("confluent", bootstrap, fresh("id")))) as fast,
    ):
        slow.begin()
        slow.send(topic, b"slow")
        fast.begin()
        fast.send(topic, b"fast")
        fast.commit()
        write(bootstrap, topic, [b"not in any"])
        assert read_all(bootstrap, topic, committed=True) == []
        assert end_offset(bootstrap, topic, committed=True) == 0
        slow.commit()
        wait_until(
            lambda: read_all(bootstrap, topic, committed=True) == [b"slow", b"fast", b"not in any"]
        )
        assert is_stable(bootstrap, topic)


def read_one(consumer: GroupConsumer) -> None:
    found: list[object] = []

    def has_arrived() -> bool:
        found.extend(consumer.poll())
        return bool(found)

    wait_until(has_arrived)


def test_offsets_are_committed_with_the_transaction(
    producer: TxnProducer, how: Producing, bootstrap: str, topic: str
) -> None:
    source = new_topic(bootstrap)
    write(bootstrap, source, [b"0", b"1", b"2"])
    place = Place(source, 0)
    joining = Joining(how.library, bootstrap, fresh("group"), (source,))
    with closing(joined(joining)) as consumer:
        read_one(consumer)
        producer.begin()
        producer.send(topic, b"from 0")
        producer.send_offsets({place: 1}, consumer, joining.group)
        producer.abort()
        assert consumer.committed(place) is None

        producer.begin()
        producer.send(topic, b"from 0, again")
        producer.send_offsets({place: 1}, consumer, joining.group)
        producer.commit()
        wait_until(lambda: consumer.committed(place) == 1)

        producer.begin()
        producer.send_offsets({place: 2}, consumer, joining.group)
        producer.commit()
        wait_until(lambda: consumer.committed(place) == 2)
    wait_until(lambda: read_all(bootstrap, topic, committed=True) == [b"from 0, again"])


def test_a_newer_incarnation_fences_the_older(how: Producing, bootstrap: str, topic: str) -> None:
    with closing(producing(how)) as older:
        older.begin()
        older.send(topic, b"older")
        with closing(producing(how)) as newer:
            with pytest.raises(Fenced):
                older.send(topic, b"too late")
            newer.begin()
            newer.send(topic, b"newer")
            newer.commit()
        wait_until(lambda: read_all(bootstrap, topic, committed=True) == [b"newer"])
        assert read_all(bootstrap, topic, committed=False) == [b"older", b"newer"]


@pytest.mark.parametrize("newer_library", LIBRARIES)
def test_an_incarnation_in_another_library_takes_over(
    newer_library: str, how: Producing, bootstrap: str, topic: str
) -> None:
    with closing(producing(how)) as older:
        older.begin()
        older.send(topic, b"older")
        taking_over = Producing(newer_library, bootstrap, how.transactional_id)
        with closing(producing(taking_over)) as newer:
            newer.begin()
            newer.send(topic, b"newer")
            with pytest.raises((Fenced, Refused)):
                older.commit()
            newer.commit()
        wait_until(lambda: read_all(bootstrap, topic, committed=True) == [b"newer"])


def test_a_transaction_that_takes_too_long_is_aborted(
    how: Producing, bootstrap: str, topic: str
) -> None:
    hurried = Producing(how.library, bootstrap, how.transactional_id, timeout_ms=1_000)
    with closing(producing(hurried)) as producer:
        producer.begin()
        producer.send(topic, b"too slow")
        write(bootstrap, topic, [b"behind it"])
        wait_until(lambda: read_all(bootstrap, topic, committed=True) == [b"behind it"])
        with pytest.raises((Fenced, Refused)):
            producer.commit()
    with closing(producing(how)) as producer:
        producer.begin()
        producer.send(topic, b"in time")
        producer.commit()
    wait_until(lambda: read_all(bootstrap, topic, committed=True) == [b"behind it", b"in time"])


def test_a_transaction_timeout_that_is_too_long_is_refused(bootstrap: str) -> None:
    with pytest.raises(Refused):
        producing(Producing("confluent", bootstrap, fresh("id"), timeout_ms=16 * 60_000))


@pytest.mark.slow
def test_open_transactions_survive_a_killed_broker(tmp_path: Path) -> None:
    """One is committed afterwards, one is aborted, and one is left behind and times out."""
    with BrokerProcess(tmp_path, QUICK, port=free_port()) as broker, ExitStack() as stack:
        topic, source = new_topic(broker.bootstrap), new_topic(broker.bootstrap)
        write(broker.bootstrap, source, [b"0"])
        committing, aborting, left = (
            stack.enter_context(closing(producing(how)))
            for how in (
                Producing("confluent", broker.bootstrap, "committing"),
                Producing("aiokafka", broker.bootstrap, "aborting"),
                Producing("confluent", broker.bootstrap, "left", timeout_ms=2_000),
            )
        )
        joining = Joining("confluent", broker.bootstrap, "group", (source,))
        consumer = stack.enter_context(closing(joined(joining)))
        read_one(consumer)
        for producer, value in ((committing, b"commit"), (aborting, b"abort"), (left, b"left")):
            producer.begin()
            producer.send(topic, value)
        committing.send_offsets({Place(source, 0): 1}, consumer, "group")

        broker.kill()
        broker.start()
        assert read_all(broker.bootstrap, topic, committed=True) == []
        committing.send(topic, b"more")
        committing.commit()
        aborting.abort()
        write(broker.bootstrap, topic, [b"last"])
        wait_until(lambda: consumer.committed(Place(source, 0)) == 1)
        expected = [b"commit", b"more", b"last"]
        wait_until(lambda: read_all(broker.bootstrap, topic, committed=True) == expected)
        with pytest.raises((Fenced, Refused)):
            left.commit()

        broker.kill()
        broker.start()
        assert read_all(broker.bootstrap, topic, committed=True) == expected
        assert is_stable(broker.bootstrap, topic)
        assert broker.failures == []
