"""What every client must be able to do: write, read back, find by offset and by time."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from dohle.testing import Broker
from tests.interop.clients import (
    BEGINNING,
    CLIENTS,
    DEADLINE_S,
    END,
    Client,
    OffsetIsOutOfRange,
    Reading,
    Received,
    Sample,
    Writing,
)
from tests.interop.conftest import QUIET_TOPIC, NewTopic
from tests.interop.waiting import wait_until
from tests.interop.wire import Wire

T0 = 1_700_000_000_000
LARGE_BYTES_MAX = 6_000_000

each_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
each_codec = pytest.mark.parametrize(
    ("client", "codec"),
    [pytest.param(c, codec, id=f"{c.name}-{codec}") for c in CLIENTS for codec in c.codecs],
)


def samples(*, null_headers: bool) -> list[Sample]:
    """Every shape of record, and enough of them for a codec to be worth while."""
    shapes = [
        Sample(b"key", b"value"),
        Sample(None, b"no key", (("trace", b"\x00\x01"), ("trace", b"again"), ("empty", b""))),
        Sample(b"tombstone", None, (("nothing", None if null_headers else b""),)),
        Sample(b"", b"", (("", b""),)),
        Sample("größe-鍵".encode(), bytes(range(256)), (("größe-鍵", b"wert"),)),
    ]
    regular = [Sample(b"key %d" % i, b"value %d " % i * 10) for i in range(200)]
    return [
        sample._replace(timestamp_ms=T0 + 10 * number)
        for number, sample in enumerate(shapes + regular)
    ]


SAMPLES = samples(null_headers=False)


def samples_of(writer: Client) -> list[Sample]:
    return samples(null_headers=writer.writes_null_headers)


def contents(received: list[Received]) -> list[Sample]:
    return [each.sample for each in received]


@each_codec
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_records_come_back_as_they_were_written(
    broker: Broker, topic: str, client: Client, codec: str, acks: int
) -> None:
    written = samples_of(client)
    offsets = client.write(broker.bootstrap, topic, written, Writing(codec, acks))

    if acks:
        assert offsets == list(range(len(written)))
    received = client.read(broker.bootstrap, topic, len(written))
    assert contents(received) == written
    assert [each.offset for each in received] == list(range(len(written)))
    assert not any(each.log_append_time for each in received)
    with Wire(broker.bootstrap) as wire:
        stored = {batch.compression.name.lower() for batch in wire.stored_batches(topic)}
    assert codec in stored


@pytest.mark.parametrize(
    ("writer", "reader", "codec"),
    [
        pytest.param(writer, reader, codec, id=f"{writer.name}-{reader.name}-{codec}")
        for writer in CLIENTS
        for reader in CLIENTS
        if reader is not writer
        for codec in writer.codecs
        if codec in reader.codecs
    ],
)
def test_what_one_client_writes_another_reads(
    broker: Broker, topic: str, writer: Client, reader: Client, codec: str
) -> None:
    written = samples_of(writer)
    writer.write(broker.bootstrap, topic, written, Writing(codec))

    assert contents(reader.read(broker.bootstrap, topic, len(written))) == written


@each_client
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_the_broker_sets_the_time_where_the_topic_says_so(
    broker: Broker, new_topic: NewTopic, client: Client, codec: str
) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000)
    client.write(broker.bootstrap, topic, SAMPLES, Writing(codec))
    after_ms = int(time.time() * 1000)

    received = client.read(broker.bootstrap, topic, len(SAMPLES))

    assert all(each.log_append_time for each in received)
    assert all(before_ms <= each.sample.timestamp_ms <= after_ms for each in received)
    assert [sample._replace(timestamp_ms=0) for sample in contents(received)] == [
        sample._replace(timestamp_ms=0) for sample in SAMPLES
    ]


@each_client
def test_keys_choose_partitions_and_each_partition_keeps_its_order(
    broker: Broker, new_topic: NewTopic, client: Client
) -> None:
    topic = new_topic(partitions=4)
    written = [Sample(b"%d" % (n % 20), b"%d" % n, (), T0 + n) for n in range(600)]
    client.write(broker.bootstrap, topic, written, partition=None)

    received = client.read(broker.bootstrap, topic, len(written), partitions=range(4))

    assert sorted(contents(received), key=lambda sample: sample.timestamp_ms) == written
    used: set[bytes | None] = set()
    for partition in range(4):
        here = [each for each in received if each.partition == partition]
        assert [each.offset for each in here] == list(range(len(here)))
        times = [each.sample.timestamp_ms for each in here]
        assert times == sorted(times)
        keys = {each.sample.key for each in here}
        assert not keys & used
        used |= keys
    assert len({each.partition for each in received}) > 1


@each_client
def test_records_larger_than_a_megabyte_where_the_topic_allows_them(
    broker: Broker, new_topic: NewTopic, client: Client
) -> None:
    topic = new_topic(max_message_bytes=str(LARGE_BYTES_MAX))
    rng = random.Random(1)
    large = [Sample(b"%d" % n, rng.randbytes(size)) for n, size in enumerate([1 << 20, 5 << 20, 9])]
    client.write(broker.bootstrap, topic, large, Writing(bytes_max=LARGE_BYTES_MAX))

    # Also for a reader whose own limit is smaller than what it is given (KIP-74).
    for bytes_max in (1_000_000, LARGE_BYTES_MAX):
        received = client.read(broker.bootstrap, topic, 3, Reading(bytes_max=bytes_max))
        assert contents(received) == large


@each_client
def test_records_larger_than_the_topic_allows_are_refused(
    broker: Broker, topic: str, client: Client
) -> None:
    large = [Sample(None, random.Random(1).randbytes(2 << 20))]

    with pytest.raises(Exception, match=r"(?i)size_?too_?large|larger than|too_?large"):
        client.write(broker.bootstrap, topic, large, Writing(bytes_max=LARGE_BYTES_MAX))

    assert client.bounds(broker.bootstrap, topic) == (0, 0)


@each_client
def test_an_idempotent_producer_numbers_its_batches(
    broker: Broker, new_topic: NewTopic, client: Client
) -> None:
    topic = new_topic(partitions=3)
    written = [Sample(None, b"%d" % n, (), T0 + n) for n in range(900)]
    for partition in range(3):
        offsets = client.write(
            broker.bootstrap,
            topic,
            written[partition::3],
            Writing(idempotent=True),
            partition=partition,
        )
        assert offsets == list(range(300))

    received = client.read(broker.bootstrap, topic, 900, partitions=range(3))

    assert sorted(contents(received), key=lambda sample: sample.timestamp_ms) == written
    with Wire(broker.bootstrap) as wire:
        producers = set()
        for partition in range(3):
            stored = wire.stored_batches(topic, partition)
            assert [batch.base_sequence for batch in stored] == [
                batch.base_offset for batch in stored
            ]
            producers |= {(batch.producer_id, batch.producer_epoch) for batch in stored}
        # One producer for each call above, all with ids of their own.
        assert len(producers) == 3
        assert all(producer_id >= 0 and epoch == 0 for producer_id, epoch in producers)


@each_client
def test_reading_starts_where_it_is_told(broker: Broker, topic: str, client: Client) -> None:
    client.write(broker.bootstrap, topic, SAMPLES)

    whole = client.read(broker.bootstrap, topic, len(SAMPLES), Reading(BEGINNING))
    assert whole[0].offset == 0
    later = client.read(broker.bootstrap, topic, 5, Reading(200))
    assert contents(later) == SAMPLES[200:]
    assert later[0].offset == 200


@each_client
def test_offsets_are_found_by_time(broker: Broker, topic: str, client: Client) -> None:
    client.write(broker.bootstrap, topic, SAMPLES)
    last = len(SAMPLES) - 1

    assert client.offset_at(broker.bootstrap, topic, 0) == 0
    assert client.offset_at(broker.bootstrap, topic, T0) == 0
    assert client.offset_at(broker.bootstrap, topic, T0 + 1) == 1
    assert client.offset_at(broker.bootstrap, topic, T0 + 1000) == 100
    assert client.offset_at(broker.bootstrap, topic, T0 + 10 * last) == last
    assert client.offset_at(broker.bootstrap, topic, T0 + 10 * last + 1) is None
    assert client.bounds(broker.bootstrap, topic) == (0, len(SAMPLES))


@each_client
def test_read_committed_reads_all_where_there_are_no_transactions(
    broker: Broker, topic: str, client: Client
) -> None:
    client.write(broker.bootstrap, topic, SAMPLES)

    received = client.read(broker.bootstrap, topic, len(SAMPLES), Reading(committed=True))

    assert contents(received) == SAMPLES


@each_client
def test_a_waiting_consumer_gets_what_is_written_later(
    quiet_broker: Broker, client: Client
) -> None:
    bootstrap, waiting = quiet_broker.bootstrap, quiet_broker.node.broker.purgatory
    client.write(bootstrap, QUIET_TOPIC, SAMPLES[:3])
    with ThreadPoolExecutor() as threads:
        # Longer than the client has patience: without the wake-up it finds nothing.
        patient = Reading(END, wait_ms_max=int(1.5 * DEADLINE_S * 1000))
        reading = threads.submit(client.read, bootstrap, QUIET_TOPIC, 1, patient)
        wait_until(lambda: waiting.count == 1)
        client.write(bootstrap, QUIET_TOPIC, SAMPLES[3:4])
        received = reading.result()

    assert contents(received) == SAMPLES[3:4]
    assert received[0].offset == 3


@each_client
def test_an_offset_out_of_range_is_reset_to_the_beginning(
    broker: Broker, topic: str, client: Client
) -> None:
    client.write(broker.bootstrap, topic, SAMPLES)

    received = client.read(broker.bootstrap, topic, 1, Reading(10_000, reset="earliest"))

    assert received[0].offset == 0


@each_client
def test_an_offset_out_of_range_is_reset_to_the_end(quiet_broker: Broker, client: Client) -> None:
    bootstrap, waiting = quiet_broker.bootstrap, quiet_broker.node.broker.purgatory
    client.write(bootstrap, QUIET_TOPIC, SAMPLES)

    with ThreadPoolExecutor() as threads:
        reading = threads.submit(
            client.read, bootstrap, QUIET_TOPIC, 1, Reading(10_000, reset="latest")
        )
        wait_until(lambda: waiting.count == 1)
        client.write(bootstrap, QUIET_TOPIC, SAMPLES[:1])
        received = reading.result()

    assert received[0].offset == len(SAMPLES)


@each_client
def test_an_offset_out_of_range_is_an_error_if_it_may_not_be_reset(
    broker: Broker, topic: str, client: Client
) -> None:
    client.write(broker.bootstrap, topic, SAMPLES)

    with pytest.raises(OffsetIsOutOfRange):
        client.read(broker.bootstrap, topic, 1, Reading(10_000, reset="none"))


@each_client
def test_a_topic_is_created_when_it_is_first_written_to(broker: Broker, client: Client) -> None:
    topic = f"created-by-{client.name}"

    client.write(broker.bootstrap, topic, SAMPLES)

    assert contents(client.read(broker.bootstrap, topic, len(SAMPLES))) == SAMPLES
