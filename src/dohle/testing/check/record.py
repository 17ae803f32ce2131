"""Histories as lines of JSON: what a check has seen is kept, and can be judged again.

Each line has the number of its round and an event. Times are in seconds since the check began;
values are text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from dohle.testing.checking.history import (
    ClientTransaction,
    Commit,
    Delivery,
    History,
    Looked,
    Outcome,
    Partition,
    Reading,
    SentRecord,
)

_NS = 1_000_000_000


class BadRecord(Exception):
    """A line that is no event of a history."""


def write_round(file: IO[str], number: int, history: History) -> None:
    """Append a history."""
    for event in _events(history):
        file.write(json.dumps({"round": number, **event}) + "\n")
    file.flush()


def _events(history: History) -> Iterator[dict[str, Any]]:
    for source, target, group in history.copies:
        yield {"event": "copies", "source": source, "target": target, "group": group}
    numbers = {id(each): number for number, each in enumerate(history.transactions)}
    for each in history.transactions:
        yield {"event": "transaction", "name": each.name, "outcome": each.outcome.value}
    for send in history.sends:
        within = None if send.transaction is None else numbers[id(send.transaction)]
        yield {
            **_place("send", send.partition),
            "process": send.process,
            "value": send.value.decode(),
            "transaction": within,
            "outcome": send.outcome.value,
            "offset": send.offset,
            "began_s": _seconds(send.began_ns),
            "ended_s": None if send.at_ns < 0 else _seconds(send.at_ns),
            "delivery": send.delivery.value,
        }
    for reading in history.readings:
        records = [
            [offset, value.decode(), _seconds(at_ns)]
            for (offset, value), at_ns in zip(reading.records, reading.given_ns, strict=True)
        ]
        yield {
            **_place("reading", reading.partition),
            "process": reading.process,
            "began_s": _seconds(reading.began_ns),
            "records": records,
        }
    for event in history.offsets:
        yield {**_place("commit", event.partition), "group": event.group, **_offset(event, numbers)}
    for partition, found in history.final.items():
        yield {
            **_place("final", partition),
            "records": [[offset, value.decode()] for offset, value in found],
        }


def _place(event: str, partition: Partition) -> dict[str, Any]:
    return {"event": event, "topic": partition.topic, "partition": partition.number}


def _offset(event: Commit | Looked, numbers: dict[int, int]) -> dict[str, Any]:
    if isinstance(event, Looked):
        return {"event": "looked", "offset": event.offset}
    within = None if event.transaction is None else numbers[id(event.transaction)]
    return {"offset": event.offset, "outcome": event.outcome.value, "transaction": within}


def _seconds(ns: int) -> float:
    return round(ns / _NS, 6)


def read_rounds(path: Path) -> dict[int, History]:
    """Return the histories of a file, by their rounds."""
    found: dict[int, History] = {}
    with path.open() as file:
        for number, line in enumerate(file, 1):
            try:
                event = json.loads(line)
                _take(found.setdefault(event["round"], History()), event)
            except (ValueError, KeyError, IndexError, TypeError) as error:
                raise BadRecord(f"{path}, line {number}: {error!r}") from error
    return found


def _take(history: History, event: dict[str, Any]) -> None:
    def within() -> ClientTransaction | None:
        number = event["transaction"]
        return None if number is None else history.transactions[number]

    match event["event"]:
        case "copies":
            history.copies.append((event["source"], event["target"], event["group"]))
        case "transaction":
            made = ClientTransaction(event["name"], Outcome(event["outcome"]))
            history.transactions.append(made)
        case "send":
            history.add(_send(event, within()))
        case "reading":
            reading = Reading(event["process"], _partition(event), began_ns=_ns(event["began_s"]))
            for offset, value, at_s in event["records"]:
                reading.given(offset, value.encode(), _ns(at_s))
            history.readings.append(reading)
        case "commit":
            outcome = Outcome(event["outcome"])
            commit = Commit(event["group"], _partition(event), event["offset"], outcome, within())
            history.offsets.append(commit)
        case "looked":
            history.looked(event["group"], _partition(event), event["offset"])
        case "final":
            records = [(offset, value.encode()) for offset, value in event["records"]]
            history.final[_partition(event)] = records
        case other:
            raise ValueError(f"unknown event {other}")


def _send(event: dict[str, Any], transaction: ClientTransaction | None) -> SentRecord:
    ended_s = event["ended_s"]
    return SentRecord(
        event["process"],
        _partition(event),
        event["value"].encode(),
        transaction,
        Outcome(event["outcome"]),
        event["offset"],
        _ns(event["began_s"]),
        -1 if ended_s is None else _ns(ended_s),
        Delivery(event["delivery"]),
    )


def _partition(event: dict[str, Any]) -> Partition:
    return Partition(event["topic"], event["partition"])


def _ns(seconds: float) -> int:
    return round(seconds * _NS)


def write_json(path: Path, content: object) -> None:
    """Write one document, for people too."""
    path.write_text(json.dumps(content, indent=2) + "\n")
