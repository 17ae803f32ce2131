"""How far each log was cleaned: kept in ``cleaner-offset-checkpoint`` (compaction 10, disk 1)."""

from __future__ import annotations

from dohle.core.ids import TopicName, TopicPartition
from dohle.storage.config import LogConfig
from dohle.storage.directory.checkpoints import CLEANER_OFFSET_CHECKPOINT, read_offsets
from tests.storage.logs import BATCH_SIZE, PARTITION, Node, append, data

PATH = f"/data/{CLEANER_OFFSET_CHECKPOINT}"
SMALL = LogConfig(segment_bytes=2 * BATCH_SIZE)
OTHER = TopicPartition(TopicName("other"), 0)


def cleaned(offset: int | None, records: int = 6) -> Node:
    """A node with records, two in a segment, that were cleaned up to an offset."""
    node = Node(SMALL)
    append(node.log, *(data() for _ in range(records)))
    node.log.cleaner_offset = offset
    return node


def kept(node: Node) -> dict[TopicPartition, int]:
    return read_offsets(node.fs, PATH)


def test_a_log_knows_after_a_start_how_far_it_was_cleaned() -> None:
    node = cleaned(4)
    node.stop()
    assert kept(node) == {PARTITION: 4}
    node.start()
    assert node.log.cleaner_offset == 4


def test_where_nothing_was_cleaned_there_is_no_file() -> None:
    node = cleaned(None)
    node.stop()
    assert not node.fs.exists(PATH)
    node.start()
    assert node.log.cleaner_offset is None


def test_an_offset_outside_the_log_is_replaced_by_its_start() -> None:
    for offset in (7, 1):
        node = cleaned(None)
        node.log.delete_records(2)
        node.stop()
        node.disk.put(PATH, b"0\n1\norders 0 %d\n" % offset)
        node.start()
        assert node.log.cleaner_offset == 2
        node.kill()


def test_if_the_file_cannot_be_read_every_log_may_have_been_cleaned() -> None:
    node = cleaned(None)
    node.stop()
    node.disk.put(PATH, b"damaged")
    node.start()
    assert node.log.cleaner_offset == 0
    # From now on the file can be read, and still says so.
    assert kept(node) == {PARTITION: 0}


def test_a_truncated_log_is_clean_no_further_than_its_active_segment() -> None:
    node = cleaned(4)
    node.log.truncate_to(3)
    # At once: the offsets are used again, for records that were not cleaned.
    assert node.log.cleaner_offset == 2
    assert kept(node) == {PARTITION: 2}
    node.log.truncate_fully_and_start_at(0)
    assert kept(node) == {PARTITION: 0}


def test_a_truncation_behind_what_was_cleaned_changes_nothing() -> None:
    node = cleaned(4)
    node.log.truncate_to(5)
    assert node.log.cleaner_offset == 4


def test_a_new_log_does_not_inherit_the_offset_of_a_deleted_one() -> None:
    node = cleaned(4)
    node.create(OTHER).cleaner_offset = 0
    node.manager.directories[0].checkpoints.write_all()
    assert kept(node) == {PARTITION: 4, OTHER: 0}
    node.manager.delete(PARTITION)
    assert kept(node) == {OTHER: 0}


def test_entries_of_logs_that_are_gone_are_dropped_at_start() -> None:
    node = cleaned(4)
    node.stop()
    node.disk.put(PATH, b"0\n2\nother 0 5\norders 0 3\n")
    node.start()
    assert kept(node) == {PARTITION: 3}
