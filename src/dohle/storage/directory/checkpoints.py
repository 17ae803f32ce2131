"""Kafka's checkpoint files: a version line, a line with the number of entries, then one a line.

Every log directory has four that map ``topic partition`` to an offset; every partition has one of
leader epochs (:mod:`dohle.storage.leader_epochs`), which uses the same reader.

- A file that is missing or empty, or that ends after its version line, has no entries: Kafka
  creates the file before it has any.
- Anything else that is not exactly in the format is a :class:`CorruptCheckpoint` with path and
  line. As in Kafka, fields are separated by white space of any length, white space may trail but
  not lead, and a line may end in ``\\n``, ``\\r\\n`` or ``\\r``.
- Writing replaces the file atomically and returns once it is on the disk.
- The version may have a plus sign, which Kafka reads and never writes: see ``format_entries``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from dohle.core.ids import TopicName, TopicPartition
from dohle.storage.files import FileSystem, write_atomically

RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT: Final = "replication-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT: Final = "log-start-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT: Final = "cleaner-offset-checkpoint"

INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1

_VERSION = 0
_MARKED_VERSION = "+0"
#: Entries begin behind the version and the count.
_FIRST_ENTRY_LINE = 3


class CorruptCheckpoint(Exception):
    """A checkpoint file that is not in the format, with the line where it is not."""

    def __init__(self, path: str, line: int, problem: str) -> None:
        super().__init__(path, line, problem)
        self.path = path
        self.line = line
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: {self.problem}"


def read_entries(fs: FileSystem, path: str) -> list[bytes]:
    """Return the entry lines of a checkpoint file; none if there is no such file."""
    try:
        data = fs.read(path)
    except FileNotFoundError:
        return []
    return parse_entries(path, data)


def parse_entries(path: str, data: bytes) -> list[bytes]:
    """Check version and count, and return the lines behind them; ``path`` is for the error."""
    # Unlike str, bytes are split at exactly the line ends that Java's reader recognises.
    lines = data.splitlines()
    if not lines:
        return lines
    version = parse_int(path, 1, lines[0], INT32_MAX)
    if version != _VERSION:
        raise CorruptCheckpoint(path, 1, f"version {version} is unknown, only {_VERSION} is known")
    if len(lines) == 1:
        return []
    count = parse_int(path, 2, lines[1], INT32_MAX)
    del lines[:2]
    if len(lines) != count:
        raise CorruptCheckpoint(path, 2, f"{count} entries are announced, {len(lines)} are there")
    return lines


def parse_fields(path: str, line_number: int, line: bytes, count: int) -> list[bytes]:
    """Split an entry at its white space into exactly ``count`` fields."""
    fields = line.split()
    if len(fields) != count or not line.startswith(fields[0]):
        raise CorruptCheckpoint(path, line_number, f"{_shown(line)} does not have {count} fields")
    return fields


def parse_int(path: str, line_number: int, field: bytes, largest: int) -> int:
    """Read a whole decimal number between ``-largest - 1`` and ``largest``."""
    # int() alone would accept spaces and underscores. A sign is read as Java reads it.
    if field.isdigit() or (field[:1] in (b"-", b"+") and field[1:].isdigit()):
        # Limiting the length keeps int() from working on a million digits.
        number = int(field) if len(field) < 100 else largest + 1
        if -largest - 1 <= number <= largest:
            return number
    raise CorruptCheckpoint(path, line_number, f"{_shown(field)} is not a number in range")


def format_entries(entries: Iterable[str], *, marked: bool = False) -> bytes:
    """Return the content of a checkpoint file with these lines.

    A mark tells that the file was written by dohle, and by nobody else since: Kafka accepts the
    file, and writes its own without a mark.
    """
    lines = [_MARKED_VERSION if marked else str(_VERSION), "", *entries, ""]
    lines[1] = str(len(lines) - _FIRST_ENTRY_LINE)
    return "\n".join(lines).encode()


def is_marked(fs: FileSystem, path: str) -> bool:
    """Tell whether the file has the mark of ``format_entries``."""
    try:
        return fs.read(path).startswith(_MARKED_VERSION.encode())
    except FileNotFoundError:
        return False


def read_offsets(fs: FileSystem, path: str) -> dict[TopicPartition, int]:
    """Return the offset of each partition; if there are two entries, the later one counts."""
    offsets = {}
    for number, line in enumerate(read_entries(fs, path), _FIRST_ENTRY_LINE):
        topic, partition, offset = parse_fields(path, number, line, 3)
        try:
            name = TopicName(topic.decode())
        except UnicodeDecodeError:
            raise CorruptCheckpoint(path, number, f"{_shown(topic)} is not UTF-8") from None
        key = TopicPartition(name, parse_int(path, number, partition, INT32_MAX))
        offsets[key] = parse_int(path, number, offset, INT64_MAX)
    return offsets


def write_offsets(fs: FileSystem, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace the file by one with these offsets."""
    entries = [offset_entry(partition, offset) for partition, offset in offsets.items()]
    write_atomically(fs, path, format_entries(entries))


def offset_entry(partition: TopicPartition, offset: int) -> str:
    """Return the line of one partition."""
    return f"{partition.topic} {partition.partition} {offset}"


def _shown(text: bytes) -> str:
    # A broken file can be one line of a gigabyte.
    return repr(text if len(text) <= 60 else text[:60] + b"...")[1:]
