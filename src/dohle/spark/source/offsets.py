"""The offsets of a stream: what the checkpoint holds, and where the next batch ends.

Rules it keeps:

- Start and end alone determine what a batch reads, so that a replay reads the same. Spark does not
  store the offset a stream starts with. So that one is empty (:data:`INITIAL`), and the first
  offsets of partitions that no earlier batch had, in the first batch or in one that found new
  partitions, are in the *end* of that batch, under ``first``.
- An end without anything new is the start itself, since Spark compares their texts.
- Topics are stored with their ids: a recreated topic has other records at the same offsets.
- The position in a missing partition is kept too, under ``gone``: it may be missing only for a
  moment, and must not be read twice when it is back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dohle.core.ids import TopicName, TopicPartition

_VERSION = 1

Positions = Mapping[TopicPartition, int]

#: The offset before the first batch: its start is determined when the batch is planned.
INITIAL: dict[str, Any] = {"version": _VERSION, "initial": True}


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The positions of a stream after a batch."""

    positions: Positions
    #: The start of partitions that are new in this batch.
    first: Positions = field(default_factory=dict)
    topic_ids: Mapping[TopicName, str] = field(default_factory=dict)
    #: The positions in partitions that are missing now.
    gone: Positions = field(default_factory=dict)

    @property
    def reached(self) -> Positions:
        """The positions in all partitions that any batch has had."""
        return {**self.gone, **self.positions}

    def to_json(self) -> dict[str, Any]:
        """Return the form that is kept in the checkpoint."""
        form: dict[str, Any] = {"version": _VERSION, "offsets": _nested(self.positions)}
        if self.first:
            form["first"] = _nested(self.first)
        if self.gone:
            form["gone"] = _nested(self.gone)
        form["topic_ids"] = dict(sorted(self.topic_ids.items()))
        return form


def parse_offset(form: Mapping[str, Any]) -> StreamOffset | None:
    """Parse the checkpoint's form; ``None`` is the offset before the first batch."""
    if form.get("version") != _VERSION:
        raise ValueError(
            f"the checkpoint holds the offset {dict(form)}, which is not of version {_VERSION}: "
            "it was written by another source or a newer dohle"
        )
    if form.get("initial"):
        return None
    return StreamOffset(
        _flat(form["offsets"]),
        _flat(form.get("first", {})),
        {TopicName(name): topic_id for name, topic_id in form["topic_ids"].items()},
        _flat(form.get("gone", {})),
    )


@dataclass(frozen=True, slots=True)
class LogView:
    """What there is to read now."""

    #: The end of each partition for this reader.
    latest: Positions
    topic_ids: Mapping[TopicName, str]


@dataclass(frozen=True, slots=True)
class Known:
    """Where reading continues in each partition, and what was lost."""

    positions: Positions
    #: Partitions that no batch has had before: their start must be found.
    new: tuple[TopicPartition, ...]
    losses: tuple[str, ...]
    #: The positions in partitions that are missing now.
    gone: Positions = field(default_factory=dict)
    #: Whether a partition ends before what had been read of it.
    is_cut: bool = False


def go_on_from(start: StreamOffset, view: LogView) -> Known:
    """Compare the stream's positions with what there is now."""
    positions: dict[TopicPartition, int] = {}
    gone: dict[TopicPartition, int] = {}
    losses: list[str] = []
    is_cut = False
    anew: set[TopicName] = set()
    for topic in {partition.topic for partition in start.reached}:
        before, now = start.topic_ids.get(topic), view.topic_ids.get(topic)
        if before is not None and now is not None and before != now:
            anew.add(topic)
    for partition, position in sorted(start.reached.items()):
        is_told = partition in start.gone
        end = view.latest.get(partition)
        if end is None:
            gone[partition] = position
            if not is_told:
                losses.append(
                    f"{partition} is gone, or no longer subscribed to; it had been read up to "
                    f"offset {position}"
                )
        elif partition.topic in anew:
            if not is_told:
                losses.append(
                    f"topic {partition.topic} was deleted and recreated; {partition} had been "
                    f"read up to offset {position} before, and begins again"
                )
        elif end < position:
            losses.append(
                f"{partition} ends at offset {end} now and had been read up to {position}: its "
                "log was truncated"
            )
            positions[partition] = end
            is_cut = True
        else:
            positions[partition] = position
    new = tuple(sorted(partition for partition in view.latest if partition not in positions))
    return Known(positions, new, tuple(losses), gone, is_cut)


def missed_by(known: Known, first: Positions) -> tuple[str, ...]:
    """Name the new partitions whose first records were gone before a batch could read them."""
    return tuple(
        f"{partition} is new and begins at offset {first[partition]}: what was before it was not "
        "read"
        for partition in known.new
        if first[partition] > 0
    )


def plan_end(
    start: StreamOffset | None, known: Known, first: Positions, ends: Positions, view: LogView
) -> dict[str, Any]:
    """Return the end of the next batch, as JSON; the start itself if there is nothing new.

    ``first`` is where the new partitions start, ``ends`` how far to read in each partition.
    """
    positions = {**known.positions, **first, **ends}
    is_same = start is not None and (positions, known.gone) == (start.positions, start.gone)
    if start is not None and is_same and not first:
        return start.to_json()
    topics = {partition.topic for partition in (*positions, *known.gone)}
    ids = {**({} if start is None else start.topic_ids), **view.topic_ids}
    ids = {topic: topic_id for topic, topic_id in ids.items() if topic in topics}
    return StreamOffset(positions, first, ids, known.gone).to_json()


def batch_ranges(
    start: StreamOffset | None, end: StreamOffset
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the non-empty ranges that a batch reads: first offset, and the one after the last.

    It depends on nothing but the checkpoint.
    """
    if start == end:
        return {}
    before: Positions = {} if start is None else start.reached
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    for partition, stop in sorted(end.positions.items()):
        begin = end.first.get(partition, before.get(partition))
        if begin is None:
            raise ValueError(
                f"the checkpoint does not say where {partition} begins: its offset log was changed"
            )
        if begin < stop:
            ranges[partition] = (begin, stop)
    return ranges


def limit_offsets(
    ranges: Mapping[TopicPartition, tuple[int, int]], offsets_max: int
) -> dict[TopicPartition, int]:
    """Return how far to read in each partition so that the total stays within the limit.

    Each partition gets a share in proportion to what is available, but at least one offset: a small
    partition next to large ones must progress too. So the total exceeds ``offsets_max`` only if
    there are more partitions. One of which nothing would be left is read to its end.
    """
    sizes = {partition: end - begin for partition, (begin, end) in ranges.items() if end > begin}
    total = sum(sizes.values())
    if total <= offsets_max:
        return {partition: end for partition, (_, end) in ranges.items()}
    shares = dict.fromkeys(sizes, 1)
    left = max(offsets_max - len(sizes), 0)
    rest = total - len(sizes)
    # Cut at integers of the running sum: the cuts never add up to more than there is.
    seen = given = 0
    for partition in sorted(sizes):
        seen += sizes[partition] - 1
        upto = left * seen // rest if rest else 0
        shares[partition] += upto - given
        given = upto
    return {
        partition: begin + shares[partition] if partition in shares else end
        for partition, (begin, end) in ranges.items()
    }


def offsets_between(ranges: Mapping[TopicPartition, tuple[int, int]]) -> int:
    """Return how many offsets there are in all ranges."""
    return sum(max(end - begin, 0) for begin, end in ranges.values())


def _nested(positions: Positions) -> dict[str, dict[str, int]]:
    form: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(positions.items()):
        form.setdefault(topic, {})[str(partition)] = offset
    return form


def _flat(form: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(TopicName(topic), int(partition)): offset
        for topic, of_topic in form.items()
        for partition, offset in of_topic.items()
    }
