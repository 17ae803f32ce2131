"""The events of a run, one JSON object per line, and their totals for each flow.

``{"event": "session"}``: Spark is up. ``run``: one started or ended. ``flow``: one changed its
state. ``progress``: a flow has finished a batch. ``error``: why a run failed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_FLOW = re.compile(r"Flow '?(?P<flow>[^' ]+)'? (?:is|has) (?P<state>[A-Z_]+)\b")
_RUN = re.compile(r"Run (?:is|has) (?P<state>[A-Z_]+)\b")

#: Flows of the catalog that pipelines use by themselves are shown without it.
_DEFAULT_CATALOG = "spark_catalog.default."


@dataclass(slots=True)
class FlowCounts:
    """The counts of a flow in one run."""

    flow: str
    state: str = "QUEUED"
    batches: int = 0
    rows_in: int = 0
    #: None if the sink does not report it.
    rows_out: int | None = None
    #: Records in the topics that are not read yet; None if it does not read topics.
    lag: int | None = None
    #: How long the last batch took.
    batch_ms: int | None = None

    def as_fields(self) -> dict[str, object]:
        """Return the columns of a table."""
        return {
            "flow": self.flow,
            "state": self.state,
            "batches": self.batches,
            "rowsIn": self.rows_in,
            "rowsOut": self.rows_out,
            "lag": self.lag,
            "batchMs": self.batch_ms,
        }


class RunCounts:
    """All flows of a run."""

    def __init__(self) -> None:
        self.flows: dict[str, FlowCounts] = {}

    def add(self, event: Mapping[str, Any]) -> FlowCounts | None:
        """Add an event, and return the flow that it is about, if any."""
        if event["event"] not in ("flow", "progress"):
            return None
        counts = self.flows.setdefault(event["flow"], FlowCounts(event["flow"]))
        if event["event"] == "flow":
            counts.state = event["state"]
            return counts
        counts.batches += 1
        counts.rows_in += event["rowsIn"]
        if event["rowsOut"] is not None:
            counts.rows_out = (counts.rows_out or 0) + event["rowsOut"]
        counts.lag = event["lag"]
        counts.batch_ms = event["batchMs"]
        return counts


def of_message(message: str) -> dict[str, Any]:
    """Return the event of Spark's message about a run."""
    if found := _FLOW.match(message):
        return {"event": "flow", "flow": short(found["flow"]), "state": found["state"]}
    if found := _RUN.match(message):
        return {"event": "run", "state": found["state"]}
    return {"event": "message", "message": message}


def of_progress(progress: Mapping[str, Any]) -> dict[str, Any]:
    """Return the event of a finished batch of a stream."""
    sources = [source for source in progress["sources"] if _positions(source["endOffset"])]
    rows_out = progress["sink"].get("numOutputRows", -1)
    return {
        "event": "progress",
        "flow": short(progress["name"]),
        "batchId": progress["batchId"],
        "rowsIn": progress["numInputRows"],
        "rowsOut": None if rows_out < 0 else rows_out,
        "lag": sum(map(_lag, sources)) if sources else None,
        "batchMs": progress["batchDuration"],
    }


def positions_of(progress: Mapping[str, Any]) -> dict[tuple[str, int], int]:
    """Return a stream's position in each partition of our own source."""
    found: dict[tuple[str, int], int] = {}
    for source in progress["sources"]:
        found |= _positions(source["endOffset"])
    return found


def short(flow: str) -> str:
    """Return a flow's name as shown to people."""
    return flow.removeprefix(_DEFAULT_CATALOG)


def _lag(source: Mapping[str, Any]) -> int:
    read = _positions(source["endOffset"])
    latest = _positions(source["latestOffset"])
    return sum(max(0, end - read.get(partition, 0)) for partition, end in latest.items())


def _positions(offset: Any) -> dict[tuple[str, int], int]:
    """Return the positions in an offset; sources other than ours have none."""
    topics = offset.get("offsets") if isinstance(offset, dict) else None
    if not isinstance(topics, dict):
        return {}
    return {
        (topic, int(number)): position
        for topic, partitions in topics.items()
        for number, position in partitions.items()
    }
