"""What a dump of a file consists of, whatever the file and the output format.

Each kind of file has a function that yields rows, notes and problems as it reads, so that a file of
any size takes little memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, StrEnum, auto


@dataclass(frozen=True, slots=True)
class Row:
    """One batch, record or entry. Its field names are those of kafka-dump-log."""

    type: str
    fields: dict[str, object]
    #: Whether it belongs to the row above it, as a record does to its batch.
    nested: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """A remark that is not a problem."""

    message: str
    position: int | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with the file, and where."""

    message: str
    position: int | None = None
    line: int | None = None

    def __str__(self) -> str:
        if self.position is not None:
            return f"position {self.position}: {self.message}"
        return self.message if self.line is None else f"line {self.line}: {self.message}"


Item = Row | Note | Problem


class IndexCheck(Enum):
    """What to do with an index instead of showing its entries."""

    NONE = auto()
    #: What a broker checks when it opens the index.
    SANITY = auto()
    #: Every entry against the log.
    LOG = auto()


class DecoderName(StrEnum):
    """The topics whose records have their own format, by the name of the option."""

    CLUSTER_METADATA = "cluster-metadata"
    OFFSETS = "offsets"
    TRANSACTION_LOG = "transaction-log"
    SHARE_GROUP_STATE = "share-group-state"
    REMOTE_LOG_METADATA = "remote-log-metadata"


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """The options of the command line."""

    records: bool = False
    decoder: DecoderName | None = None
    limit: int | None = None
    index_check: IndexCheck = IndexCheck.NONE


@dataclass(frozen=True, slots=True)
class DumpedFile:
    """A file to dump, and what its name says."""

    path: str
    #: The kind of file, for people.
    kind: str
    #: The last part of the path, without the suffix of a temporary or deleted file.
    name: str
    #: The number at the start of the name, if it has one.
    base_offset: int | None


Dump = Callable[[DumpedFile, DumpOptions], Iterator[Item]]
