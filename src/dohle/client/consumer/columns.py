"""Records by columns: what a response has of one partition, without an object for each record.

As plain Python (:class:`ColumnBatch`), or as Arrow's RecordBatch if pyarrow is installed: then the
columns are read by :mod:`dohle.records.columnar`, many times as quickly as records one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from dohle.client.config import ConsumerConfig
from dohle.client.consumer.fetched import FetchedRecords
from dohle.client.consumer.fetcher import Form
from dohle.core.ids import TopicName
from dohle.records.record import Header, Record
from dohle.records.varint import INT64_MAX

if TYPE_CHECKING:
    import pyarrow as pa

#: The most records of a batch.
ROWS_MAX = 10_000


class ColumnBatch(NamedTuple):
    """Records of one partition, in order: an entry of each column for each record."""

    topic: TopicName
    partition: int
    offsets: tuple[int, ...]
    #: In milliseconds.
    timestamps: tuple[int, ...]
    keys: tuple[bytes | None, ...]
    values: tuple[bytes | None, ...]
    headers: tuple[tuple[Header, ...], ...]


def column_batches(fetched: FetchedRecords, config: ConsumerConfig) -> Iterator[ColumnBatch]:
    """Yield the records by columns and advance the reader's position.

    Those of the batches before a damaged one come first; then its error is raised.
    """
    reader = fetched.reader
    lists = fetched.record_lists(config)
    rows: list[Record] = []
    failure: Exception | None = None
    while failure is None:
        try:
            rows += next(lists)
        except StopIteration:
            break
        except Exception as error:
            failure = error
        whole = len(rows) // ROWS_MAX * ROWS_MAX
        for begin in range(0, whole, ROWS_MAX):
            yield _handed_out(fetched, rows[begin : begin + ROWS_MAX])
        del rows[:whole]
    if rows:
        yield _handed_out(fetched, rows)
    if failure is not None:
        raise failure
    end = fetched.next_offset
    fetched.returned_to(end if reader.stop_at is None else min(end, reader.stop_at))


def _handed_out(fetched: FetchedRecords, rows: list[Record]) -> ColumnBatch:
    fetched.returned_to(rows[-1].offset + 1)
    return ColumnBatch(*fetched.reader.partition, *zip(*rows, strict=True))


def arrow_batches(
    fetched: FetchedRecords, config: ConsumerConfig, *, headers: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the records as Arrow batches and advance the reader's position."""
    from dohle.records.columnar.decode import Decoding

    reader = fetched.reader
    topic, partition = reader.partition
    end = INT64_MAX if reader.stop_at is None else reader.stop_at
    decoding = Decoding(
        fetched.data,
        reader.position,
        end,
        topic=topic,
        partition=partition,
        aborted=fetched.aborted,
        include_headers=headers,
        decompressed_bytes_max=config.decompressed_bytes_max,
    )
    for rows in decoding:
        fetched.returned_to(rows.column("offset")[-1].as_py() + 1)
        yield rows
    fetched.returned_to(min(decoding.next_offset, end))


_ARROW = partial(arrow_batches, headers=False)
_ARROW_WITH_HEADERS = partial(arrow_batches, headers=True)


def form_of(*, arrow: bool, headers: bool) -> Form:
    """Return how to hand out batches, or raise what is missing for it."""
    if not arrow:
        return column_batches
    for name in ("pyarrow", "numpy"):
        if find_spec(name) is None:
            raise ModuleNotFoundError(
                f"batches of Arrow need {name}: install it, or leave out arrow=True", name=name
            )
    return _ARROW_WITH_HEADERS if headers else _ARROW
