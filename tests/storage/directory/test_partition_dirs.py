from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.ids import TopicName, TopicPartition, Uuid
from dohle.core.uuid import ZERO_UUID, uuid_from_text
from dohle.storage.directory.partition_dirs import (
    CorruptPartitionMetadata,
    NotAPartitionDir,
    PartitionDir,
    PartitionDirKind,
    delete_dir_name,
    future_dir_name,
    parse_partition_dir,
    partition_dir_name,
    read_partition_metadata,
    stray_dir_name,
    write_partition_metadata,
)
from dohle.testing.simulation.files import SimulatedFileSystem

UNIQUE = Uuid(bytes(range(16)))
HEX = "000102030405060708090a0b0c0d0e0f"
FOLDER = "/data/orders-0"
TOPIC_ID = "cQSUj8mCSQirzKmPtvjYdw"

topic_partitions = st.builds(
    TopicPartition,
    st.text("abcXYZ019._-", min_size=1, max_size=249).map(TopicName),
    st.integers(0, (1 << 31) - 1),
)
uuids = st.binary(min_size=16, max_size=16).map(Uuid)


def partition(topic: str, number: int) -> TopicPartition:
    return TopicPartition(TopicName(topic), number)


def disk(content: bytes | None = None) -> SimulatedFileSystem:
    fs = SimulatedFileSystem()
    fs.make_dirs(FOLDER)
    fs.settle()
    if content is not None:
        fs.put(f"{FOLDER}/partition.metadata", content)
    return fs


def test_names_are_kafkas() -> None:
    orders = partition("my-orders.v1", 12)
    assert partition_dir_name(orders) == "my-orders.v1-12"
    assert delete_dir_name(orders, UNIQUE) == f"my-orders.v1-12.{HEX}-delete"
    assert stray_dir_name(orders, UNIQUE) == f"my-orders.v1-12.{HEX}-stray"
    assert future_dir_name(orders, UNIQUE) == f"my-orders.v1-12.{HEX}-future"


@pytest.mark.parametrize(("build", "topic_length"), [(delete_dir_name, 213), (stray_dir_name, 214)])
def test_the_topic_is_cut_so_that_the_name_fits(build: object, topic_length: int) -> None:
    assert callable(build)
    name = build(partition("t" * 249, 7), UNIQUE)
    assert len(name) == 255
    assert parse_partition_dir(name).topic_partition == partition("t" * topic_length, 7)


@given(topic_partitions, uuids)
def test_what_was_named_is_parsed(topic_partition: TopicPartition, unique: Uuid) -> None:
    live = parse_partition_dir(partition_dir_name(topic_partition))
    assert live == PartitionDir(topic_partition, PartitionDirKind.LIVE)
    future = parse_partition_dir(future_dir_name(topic_partition, unique))
    assert future == PartitionDir(topic_partition, PartitionDirKind.FUTURE)
    for build, kind in (
        (delete_dir_name, PartitionDirKind.DELETE),
        (stray_dir_name, PartitionDirKind.STRAY),
    ):
        name = build(topic_partition, unique)
        assert len(name) <= 255
        found = parse_partition_dir(name)
        assert found.kind is kind
        assert found.topic_partition.partition == topic_partition.partition
        assert topic_partition.topic.startswith(found.topic_partition.topic)


@pytest.mark.parametrize(
    ("name", "topic", "number"),
    [
        ("a-0", "a", 0),
        ("a--5", "a-", 5),
        ("a-b-2147483647", "a-b", 2147483647),
        ("a.b-1", "a.b", 1),
    ],
)
def test_a_name_is_parted_at_its_last_dash(name: str, topic: str, number: int) -> None:
    assert parse_partition_dir(name) == (partition(topic, number), PartitionDirKind.LIVE)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "orders",
        "-",
        "-1",
        "orders-",
        "orders-x",
        "orders-1x",
        "orders-01",
        "orders-+1",
        "orders-2147483648",
        "orders-99999999999",
        "orders-٣",
        "orders-delete",
        "orders-1-delete",
        "orders-1.-delete",
        "orders.abc-delete",
        f"orders-1. {HEX}-delete",
        f"orders-x.{HEX}-delete",
        f"-1.{HEX}-stray",
        "remote-log-index-cache",
    ],
)
def test_a_name_that_is_no_partitions_is_refused(name: str) -> None:
    with pytest.raises(NotAPartitionDir, match="not the name of a partition folder"):
        parse_partition_dir(name)


@given(st.text(max_size=30) | st.text("a-.0delt", max_size=20))
def test_any_name_is_parsed_or_refused(name: str) -> None:
    try:
        found = parse_partition_dir(name)
    except NotAPartitionDir:
        return
    assert name.startswith(partition_dir_name(found.topic_partition))


def test_the_topic_id_is_written_as_kafka_writes_it_and_survives_a_power_cut() -> None:
    fs = disk()
    write_partition_metadata(fs, FOLDER, uuid_from_text(TOPIC_ID))
    fs.power_loss_everything_unsynced_lost()
    expected = f"version: 0\ntopic_id: {TOPIC_ID}".encode()
    assert fs.files() == {f"{FOLDER}/partition.metadata": expected}


@given(uuids.filter(lambda uuid: uuid != ZERO_UUID))
def test_a_topic_id_that_was_written_is_read(topic_id: Uuid) -> None:
    fs = disk()
    write_partition_metadata(fs, FOLDER, topic_id)
    assert read_partition_metadata(fs, FOLDER) == topic_id


def test_a_folder_without_the_file_has_no_topic_id() -> None:
    assert read_partition_metadata(disk(), FOLDER) is None


@pytest.mark.parametrize(
    "content",
    [
        f"version: 0\ntopic_id: {TOPIC_ID}\n",
        f"version: 0\r\ntopic_id: {TOPIC_ID}\r\n",
        f"version: 3\ntopic_id: {TOPIC_ID}\nmore: 5\n",
        f"version:  0 \ntopic_id:\t{TOPIC_ID}",
    ],
)
def test_what_kafka_reads_is_read(content: str) -> None:
    assert read_partition_metadata(disk(content.encode()), FOLDER) == uuid_from_text(TOPIC_ID)


@pytest.mark.parametrize("content", [b"", bytes(43)])
def test_a_file_that_a_power_cut_left_empty_names_no_topic(content: bytes) -> None:
    fs = SimulatedFileSystem()
    fs.put("/d/t-0/partition.metadata", content)
    assert read_partition_metadata(fs, "/d/t-0") is None


@pytest.mark.parametrize(
    "content",
    [
        "version: 0",
        "version: 0\n",
        "version: 0\n\n",
        "version:0\ntopic_id:x",
        f"version: -1\ntopic_id: {TOPIC_ID}",
        f"version: x\ntopic_id: {TOPIC_ID}",
        f"version: 0\ntopic_id: {TOPIC_ID[:-1]}",
        "version: 0\ntopic_id: " + "!" * 22,
        "version: 0\ntopic_id: " + "A" * 22,
        f"version: 0\ntopic_id: {TOPIC_ID}: 5",
    ],
)
def test_a_file_that_names_no_topic_is_refused_with_its_path(content: str) -> None:
    with pytest.raises(CorruptPartitionMetadata, match=f"^{FOLDER}/partition.metadata: "):
        read_partition_metadata(disk(content.encode()), FOLDER)


def test_the_zero_uuid_is_not_written() -> None:
    with pytest.raises(ValueError, match="zero uuid"):
        write_partition_metadata(disk(), FOLDER, ZERO_UUID)
