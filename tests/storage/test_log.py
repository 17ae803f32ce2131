from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import crc32c
import pytest

from dohle.core.errors import ErrorCode, KafkaError
from dohle.records.batch import BATCH_HEADER, Codec, TimestampType
from dohle.records.builder import build_empty_batch
from dohle.storage.config import LogConfig
from dohle.storage.files import OsFileSystem
from dohle.storage.leader_epochs import EpochEntry
from dohle.storage.producers.state import AppendOrigin
from tests.records.message_sets import Message, build_message_set
from tests.storage.logs import (
    LEADER_EPOCH,
    NOW_MS,
    Node,
    append,
    batch,
    data,
    log_batches,
    log_bytes,
    log_records,
    marker,
    offsets,
    refuses,
    state_of,
)

PID = 17


@pytest.fixture(params=["simulated", "os"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Node]:
    node = (
        Node() if request.param == "simulated" else Node(fs=OsFileSystem(), paths=[str(tmp_path)])
    )
    yield node
    node.kill()


def idempotent(sequence: int, count: int = 1, *, epoch: int = 0) -> bytearray:
    return batch([NOW_MS] * count, pid=PID, epoch=epoch, sequence=sequence)


# Leaders


def test_a_leader_gives_offsets_one_behind_the_other(node: Node) -> None:
    log = node.log
    first, second, third = append(log, data(3), data(1), data(2))
    assert (first.first_offset, first.last_offset) == (0, 2)
    assert (second.first_offset, second.last_offset) == (3, 3)
    assert (third.first_offset, third.last_offset) == (4, 5)
    assert log.log_end_offset == 6
    assert [(one.base_offset, one.last_offset) for one in log_batches(log)] == [
        (0, 2),
        (3, 3),
        (4, 5),
    ]
    assert offsets(log_records(log)) == [0, 1, 2, 3, 4, 5]


def test_an_append_tells_what_was_written(node: Node) -> None:
    built = batch([NOW_MS + 5, NOW_MS + 9, NOW_MS])
    info = node.log.append_as_leader(built, LEADER_EPOCH)
    assert info.max_timestamp == NOW_MS + 9
    assert info.log_append_time_ms == -1
    assert info.size == len(built) == node.log.size
    assert not info.is_duplicate


def test_the_bytes_on_disk_are_those_sent_but_for_offset_and_epoch(node: Node) -> None:
    sent = bytes(batch([NOW_MS, NOW_MS + 1], value=b"v" * 500, codec=Codec.GZIP))
    append(node.log, data(3), bytearray(sent))
    stored = log_bytes(node.log)[-len(sent) :]
    assert stored[:8] == (3).to_bytes(8, "big")
    assert stored[8:12] == sent[8:12]
    assert stored[12:16] == LEADER_EPOCH.to_bytes(4, "big")
    assert stored[16:] == sent[16:]


def test_a_batch_that_may_not_be_written_to_is_appended_all_the_same(node: Node) -> None:
    sent = bytes(data(2))
    append(node.log, data(1))
    assert node.log.append_as_leader(sent, LEADER_EPOCH).first_offset == 1
    assert sent == bytes(data(2))
    assert offsets(log_records(node.log)) == [0, 1, 2]


def test_a_leader_stamps_its_epoch_and_notes_where_it_begins(node: Node) -> None:
    log = node.log
    log.append_as_leader(data(2), 0)
    log.append_as_leader(data(1), 0)
    log.append_as_leader(data(1), 5)
    assert [one.partition_leader_epoch for one in log_batches(log)] == [0, 0, 5]
    assert log.leader_epochs.entries == [EpochEntry(0, 0), EpochEntry(5, 3)]
    assert node.files("leader-epoch-checkpoint") == {"leader-epoch-checkpoint": b"0\n2\n0 0\n5 3\n"}


def test_log_append_time_replaces_the_producers_timestamps(node: Node) -> None:
    node.config = LogConfig(message_timestamp_type_log_append=True)
    node.clock.advance(12_345)
    info = node.log.append_as_leader(batch([7, 5], codec=Codec.GZIP), LEADER_EPOCH)
    assert info.log_append_time_ms == info.max_timestamp == NOW_MS + 12_345
    (stored,) = log_batches(node.log)
    assert stored.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert stored.max_timestamp == NOW_MS + 12_345
    assert [record.timestamp for record in stored] == [NOW_MS + 12_345] * 2


def test_a_coordinator_may_append_several_batches_at_once(node: Node) -> None:
    log = node.log
    info = log.append_as_leader(data(2) + data(3), LEADER_EPOCH, origin=AppendOrigin.COORDINATOR)
    assert (info.first_offset, info.last_offset) == (0, 4)
    assert [(one.base_offset, one.last_offset) for one in log_batches(log)] == [(0, 1), (2, 4)]


# What is refused


def flipped(position: int) -> bytearray:
    built = data(2)
    built[position] ^= 1
    return built


def with_header(field: int, value: int) -> bytearray:
    """A batch with one field of its header changed, and a checksum that fits."""
    built = batch(pid=PID, epoch=3, sequence=1)
    fields = list(BATCH_HEADER.unpack_from(built))
    fields[field] = value
    BATCH_HEADER.pack_into(built, 0, *fields)
    fields[4] = crc32c.crc32c(built[21:])
    BATCH_HEADER.pack_into(built, 0, *fields)
    return built


REFUSED: dict[str, tuple[ErrorCode, Callable[[], bytes | bytearray]]] = {
    "a flipped bit in the records": (ErrorCode.CORRUPT_MESSAGE, lambda: flipped(90)),
    "a flipped bit in the checksum": (ErrorCode.CORRUPT_MESSAGE, lambda: flipped(18)),
    "a flipped bit in the attributes": (ErrorCode.CORRUPT_MESSAGE, lambda: flipped(22)),
    "a batch cut off": (ErrorCode.CORRUPT_MESSAGE, lambda: data(2)[:-1]),
    "a batch above max.message.bytes": (
        ErrorCode.MESSAGE_TOO_LARGE,
        lambda: batch(value=bytes(1000)),
    ),
    "a base offset that is not zero": (
        ErrorCode.INVALID_RECORD,
        lambda: data(1, base_offset=1),
    ),
    "a control batch": (ErrorCode.INVALID_RECORD, lambda: marker(PID, commit=True)),
    "two batches": (ErrorCode.INVALID_RECORD, lambda: data(1) + data(1)),
    "no batch": (ErrorCode.INVALID_RECORD, lambda: b""),
    "a batch without records": (
        ErrorCode.INVALID_RECORD,
        lambda: build_empty_batch(
            base_offset=0, last_offset=0, max_timestamp=NOW_MS, partition_leader_epoch=-1
        ),
    ),
    "more records than offsets": (ErrorCode.INVALID_RECORD, lambda: with_header(12, 2)),
    "more offsets than records": (ErrorCode.INVALID_RECORD, lambda: with_header(6, 1)),
    "a producer without a sequence": (ErrorCode.INVALID_RECORD, lambda: with_header(11, -1)),
    "a message of the old format": (
        ErrorCode.INVALID_RECORD,
        lambda: build_message_set(1, [Message(NOW_MS, None, b"v")]),
    ),
    "a sequence that leaves a gap": (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        lambda: idempotent(2, epoch=3),
    ),
    "an epoch that was fenced": (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        lambda: idempotent(1, epoch=2),
    ),
    "a new epoch that does not start at zero": (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        lambda: idempotent(1, epoch=4),
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_client_may_not_send_is_refused_and_changes_nothing(what: str) -> None:
    code, build = REFUSED[what]
    node = Node(LogConfig(max_message_bytes=1000))
    append(node.log, data(2), idempotent(0, epoch=3))
    before = state_of(node.log)
    # A higher leader epoch too must leave no trace of a batch that was not taken.
    refuses(code, lambda: node.log.append_as_leader(build(), LEADER_EPOCH + 1))
    assert state_of(node.log) == before
    assert append(node.log, idempotent(1, epoch=3))[0].first_offset == 3


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    node = Node(LogConfig(segment_bytes=199))
    append(node.log, data(1))
    before = state_of(node.log)
    refuses(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        lambda: node.log.append_as_leader(batch(value=bytes(130)), LEADER_EPOCH + 1),
    )
    assert state_of(node.log) == before
    assert append(node.log, batch(value=bytes(129)))[0].size == 199


def test_max_message_bytes_is_the_largest_size_and_not_the_first_too_large() -> None:
    built = batch(value=bytes(500))
    node = Node(LogConfig(max_message_bytes=len(built)))
    append(node.log, built)
    refuses(
        ErrorCode.MESSAGE_TOO_LARGE,
        lambda: node.log.append_as_leader(batch(value=bytes(501)), LEADER_EPOCH),
    )


# Idempotent producers


def test_a_duplicate_is_answered_with_its_old_offsets_and_not_written(node: Node) -> None:
    log = node.log
    append(log, data(1), idempotent(0, 3), data(1))
    before = state_of(log)
    info = log.append_as_leader(idempotent(0, 3), LEADER_EPOCH)
    assert info.is_duplicate
    assert (info.first_offset, info.last_offset) == (1, 3)
    assert info.log_append_time_ms == NOW_MS
    assert state_of(log) == before


def test_the_last_five_batches_of_a_producer_are_known_as_duplicates(node: Node) -> None:
    log = node.log
    append(log, *[idempotent(sequence) for sequence in range(6)])
    for sequence in range(1, 6):
        info = log.append_as_leader(idempotent(sequence), LEADER_EPOCH)
        assert (info.is_duplicate, info.first_offset) == (True, sequence)
    refuses(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        lambda: log.append_as_leader(idempotent(0), LEADER_EPOCH),
    )
    assert log.log_end_offset == 6


@pytest.mark.parametrize("clean", [True, False])
def test_a_duplicate_is_known_after_a_restart(node: Node, clean: bool) -> None:
    append(node.log, idempotent(0, 2), idempotent(2, 2))
    log = node.restart(clean=clean)
    assert log.append_as_leader(idempotent(2, 2), LEADER_EPOCH).is_duplicate
    refuses(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        lambda: log.append_as_leader(idempotent(5), LEADER_EPOCH),
    )
    assert append(log, idempotent(4))[0].first_offset == 4


def test_the_quorums_leader_may_only_write_batches_of_its_epoch(node: Node) -> None:
    log = node.log
    append(log, data(1))
    before = state_of(log)
    for epoch in (LEADER_EPOCH - 1, LEADER_EPOCH + 1, -1):
        sent = batch(leader_epoch=LEADER_EPOCH) + batch(leader_epoch=epoch)
        refuses(
            ErrorCode.INVALID_RECORD,
            partial(log.append_as_leader, sent, LEADER_EPOCH, origin=AppendOrigin.RAFT_LEADER),
        )
        assert state_of(log) == before
    sent = batch(leader_epoch=LEADER_EPOCH)
    log.append_as_leader(sent, LEADER_EPOCH, origin=AppendOrigin.RAFT_LEADER)
    assert log.log_end_offset == 2


# Followers


def test_a_follower_takes_offsets_and_epochs_as_they_are(node: Node) -> None:
    log = node.log
    sent = data(2, base_offset=0, leader_epoch=1) + data(3, base_offset=2, leader_epoch=3)
    info = log.append_as_follower(sent, 3)
    assert info is not None
    assert (info.first_offset, info.last_offset, info.size) == (0, 4, len(sent))
    assert log_bytes(log) == sent
    assert log.leader_epochs.entries == [EpochEntry(1, 0), EpochEntry(3, 2)]
    assert log.log_end_offset == 5


def test_a_follower_takes_gaps(node: Node) -> None:
    log = node.log
    log.append_as_follower(data(2, base_offset=4, leader_epoch=1), 1)
    log.append_as_follower(
        data(1, base_offset=9, leader_epoch=1) + data(1, base_offset=12, leader_epoch=1), 1
    )
    assert offsets(log_records(log)) == [4, 5, 9, 12]
    assert log.log_end_offset == 13
    assert offsets(log_records(node.restart(clean=False))) == [4, 5, 9, 12]


@pytest.mark.parametrize(
    "sent",
    [
        data(1, base_offset=1, leader_epoch=1),
        data(3, base_offset=1, leader_epoch=1),
        data(1, base_offset=5, leader_epoch=1) + data(1, base_offset=5, leader_epoch=1),
        data(1, base_offset=5, leader_epoch=1) + data(1, base_offset=3, leader_epoch=1),
    ],
    ids=["below the end", "across the end", "the same again", "backwards within"],
)
def test_a_follower_refuses_offsets_that_go_back(node: Node, sent: bytearray) -> None:
    log = node.log
    log.append_as_follower(data(2, base_offset=0, leader_epoch=1), 1)
    before = state_of(log)
    with pytest.raises(KafkaError):
        log.append_as_follower(sent, 1)
    assert state_of(log) == before


def test_a_follower_leaves_out_what_a_later_leader_wrote(node: Node) -> None:
    log = node.log
    sent = [
        data(2, base_offset=0, leader_epoch=1),
        data(1, base_offset=2, leader_epoch=2),
        data(1, base_offset=3, leader_epoch=1),
    ]
    info = log.append_as_follower(b"".join(sent), 1)
    assert info is not None
    assert info.last_offset == 1
    assert log_bytes(log) == sent[0]
    assert log.leader_epochs.entries == [EpochEntry(1, 0)]
    assert log.append_as_follower(sent[1], 1) is None
    assert log.log_end_offset == 2


def test_a_follower_leaves_out_a_batch_that_was_cut(node: Node) -> None:
    log = node.log
    first, second = data(2, base_offset=0, leader_epoch=1), data(1, base_offset=2, leader_epoch=1)
    for cut in (1, 12, 60, 99):
        assert log.append_as_follower(first[:cut], 1) is None
    assert log.append_as_follower(b"", 1) is None
    log.append_as_follower(first + second[:-1], 1)
    assert log_bytes(log) == first
    log.append_as_follower(second, 1)
    assert log.log_end_offset == 3


def test_a_follower_refuses_a_damaged_batch_and_all_it_came_with(node: Node) -> None:
    log = node.log
    sent = data(2, base_offset=0, leader_epoch=1) + data(1, base_offset=2, leader_epoch=1)
    sent[-1] ^= 0x10
    before = state_of(log)
    refuses(ErrorCode.CORRUPT_MESSAGE, lambda: log.append_as_follower(sent, 1))
    assert state_of(log) == before


def test_a_follower_learns_producers_from_its_leader(node: Node) -> None:
    log = node.log
    sent = batch([NOW_MS] * 2, pid=PID, epoch=0, sequence=40, leader_epoch=1)
    log.append_as_follower(sent, 1)
    assert log.producer_state.producers[PID].last_sequence == 41
    # What the leader took is not judged again.
    odd = batch(base_offset=2, pid=PID, epoch=0, sequence=90, leader_epoch=1)
    log.append_as_follower(odd, 1)
    assert log.producer_state.producers[PID].last_sequence == 90


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_formats_are_kept_and_end_what_is_known_of_epochs(
    node: Node, magic: int
) -> None:
    log = node.log
    log.append_as_follower(data(2, base_offset=0, leader_epoch=1), 1)
    messages = [Message(NOW_MS + n, b"k%d" % n, b"v%d" % n) for n in range(3)]
    old = build_message_set(magic, messages, base_offset=2)
    wrapped = build_message_set(magic, messages, base_offset=5, codec=Codec.GZIP)
    log.append_as_follower(old + wrapped, 1)
    assert log.leader_epochs.entries == []
    assert log.log_end_offset == 8
    for log in (node.log, node.restart(clean=True), node.restart(clean=False)):
        assert [(r.offset, r.value) for r in log_records(log)[2:]] == [
            (offset, b"v%d" % ((offset - 2) % 3)) for offset in range(2, 8)
        ]
