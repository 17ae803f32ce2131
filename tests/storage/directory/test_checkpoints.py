from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.ids import TopicName, TopicPartition
from dohle.storage.directory.checkpoints import (
    INT64_MAX,
    RECOVERY_POINT_CHECKPOINT,
    CorruptCheckpoint,
    format_entries,
    parse_entries,
    read_entries,
    read_offsets,
    write_offsets,
)
from dohle.testing.simulation.files import SimulatedFileSystem

PATH = f"/data/{RECOVERY_POINT_CHECKPOINT}"

topic_names = st.text(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", min_size=1, max_size=249
)
topic_partitions = st.builds(
    TopicPartition, topic_names.map(TopicName), st.integers(0, (1 << 31) - 1)
)


def disk_with(content: bytes) -> SimulatedFileSystem:
    fs = SimulatedFileSystem()
    fs.put(PATH, content)
    return fs


def partition(topic: str, number: int) -> TopicPartition:
    return TopicPartition(TopicName(topic), number)


def test_offsets_are_written_in_kafkas_format() -> None:
    fs = disk_with(b"")
    write_offsets(fs, PATH, {partition("orders", 0): 12, partition("a-b.c_d", 7): INT64_MAX})
    assert fs.files() == {PATH: b"0\n2\norders 0 12\na-b.c_d 7 9223372036854775807\n"}


def test_no_offsets_are_written_as_a_count_of_zero() -> None:
    fs = disk_with(b"")
    write_offsets(fs, PATH, {})
    assert fs.files() == {PATH: b"0\n0\n"}


@given(st.dictionaries(topic_partitions, st.integers(-1, INT64_MAX), max_size=20))
def test_offsets_that_were_written_are_read(offsets: dict[TopicPartition, int]) -> None:
    fs = disk_with(b"")
    write_offsets(fs, PATH, offsets)
    assert read_offsets(fs, PATH) == offsets


def test_a_missing_file_has_no_entries() -> None:
    assert read_offsets(SimulatedFileSystem(), PATH) == {}
    assert read_entries(SimulatedFileSystem(), PATH) == []


@pytest.mark.parametrize("content", [b"", b"0", b"0\n", b"0\n0", b"0\n0\n", b"+0\r\n0\r\n"])
def test_a_file_that_ends_before_its_entries_has_none(content: bytes) -> None:
    assert read_offsets(disk_with(content), PATH) == {}


@pytest.mark.parametrize(
    "content",
    [
        b"0\n1\norders 3 12\n",
        b"0\n1\norders 3 12",
        b"0\r\n1\r\norders 3 12\r\n",
        b"0\r1\rorders 3 12\r",
        b"0\n1\norders  \t 3\x0b\x0c12 \t\n",
        b"00\n+1\norders +3 0012\n",
        b"0\n2\norders 3 7\norders 3 12\n",
    ],
)
def test_what_kafka_reads_is_read(content: bytes) -> None:
    assert read_offsets(disk_with(content), PATH) == {partition("orders", 3): 12}


@pytest.mark.parametrize(
    ("content", "line", "problem"),
    [
        (b"\n", 1, "not a number"),
        (b"1\n0\n", 1, "version 1 is unknown"),
        (b"-1\n0\n", 1, "version -1 is unknown"),
        (b" 0\n0\n", 1, "not a number"),
        (b"0 \n0\n", 1, "not a number"),
        (b"\x00\x00\x00\x00", 1, "not a number"),
        (b"0\n\n", 2, "not a number"),
        (b"0\nx\n", 2, "not a number"),
        (b"0\n1_0\n", 2, "not a number"),
        (b"0\n-1\n", 2, "-1 entries are announced, 0 are there"),
        (b"0\n2147483648\n", 2, "not a number"),
        (b"0\n" + b"9" * 10_000 + b"\n", 2, "not a number"),
        (b"0\n2\norders 3 12\n", 2, "2 entries are announced, 1 are there"),
        (b"0\n1\norders 3 12\n\n", 2, "1 entries are announced, 2 are there"),
        (b"0\n2\norders 3 12\n\n", 4, "does not have 3 fields"),
        (b"0\n1\norders 3\n", 3, "does not have 3 fields"),
        (b"0\n1\norders 3 12 4\n", 3, "does not have 3 fields"),
        (b"0\n1\n orders 3 12\n", 3, "does not have 3 fields"),
        (b"0\n1\n   \n", 3, "does not have 3 fields"),
        (b"0\n1\norders 3 1.5\n", 3, "'1.5' is not a number"),
        (b"0\n1\norders 3 9223372036854775808\n", 3, "not a number"),
        (b"0\n1\norders 2147483648 12\n", 3, "not a number"),
        (b"0\n1\norders 3 +-12\n", 3, "not a number"),
        (b"0\n1\norders 3 -\n", 3, "not a number"),
        (b"0\n1\norders 3 \xd9\xa3\n", 3, "not a number"),
        (b"0\n1\nord\xffers 3 12\n", 3, "not UTF-8"),
    ],
)
def test_what_is_not_in_the_format_is_refused_with_its_line(
    content: bytes, line: int, problem: str
) -> None:
    with pytest.raises(CorruptCheckpoint) as refused:
        read_offsets(disk_with(content), PATH)
    assert (refused.value.path, refused.value.line) == (PATH, line)
    assert problem in str(refused.value)
    assert str(refused.value).startswith(f"{PATH}, line {line}: ")
    assert len(str(refused.value)) < 200


@given(st.binary(max_size=60) | st.text("0123 \n\r-+a", max_size=40).map(str.encode))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    fs = disk_with(content)
    try:
        offsets = read_offsets(fs, PATH)
    except CorruptCheckpoint:
        return
    assert all(isinstance(offset, int) for offset in offsets.values())


@given(st.lists(st.text("ab 1", min_size=1)))
def test_entries_of_any_kind_go_through_the_generic_format(entries: list[str]) -> None:
    assert parse_entries(PATH, format_entries(entries)) == [entry.encode() for entry in entries]
