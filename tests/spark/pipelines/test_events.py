"""What a run tells, added up for each flow."""

from __future__ import annotations

from typing import Any

import pytest

from dohle.spark.pipelines.events import RunCounts, of_message, of_progress, positions_of
from dohle.spark.pipelines.runner import describe


def progress(end: Any, latest: Any, *, rows_out: int = 4) -> dict[str, Any]:
    return {
        "name": "spark_catalog.default.orders",
        "batchId": 3,
        "batchDuration": 120,
        "numInputRows": 6,
        "sources": [{"endOffset": end, "latestOffset": latest}],
        "sink": {"numOutputRows": rows_out},
    }


def offset(**partitions: int) -> dict[str, Any]:
    numbers = {name.removeprefix("p"): position for name, position in partitions.items()}
    return {"version": 1, "offsets": {"orders": numbers}}


@pytest.mark.parametrize(
    ("message", "flow", "state"),
    [
        ("Flow spark_catalog.default.t is QUEUED.", "t", "QUEUED"),
        ("Flow clean has COMPLETED.", "clean", "COMPLETED"),
        ("Flow 'clean' has FAILED.", "clean", "FAILED"),
    ],
)
def test_messages_about_flows_are_read(message: str, flow: str, state: str) -> None:
    assert of_message(message) == {"event": "flow", "flow": flow, "state": state}


def test_messages_about_runs_and_others_are_read() -> None:
    assert of_message("Run is COMPLETED.") == {"event": "run", "state": "COMPLETED"}
    assert of_message("Well then.") == {"event": "message", "message": "Well then."}


def test_lag_is_what_the_topics_have_beyond_what_was_read() -> None:
    event = of_progress(progress(offset(p0=10, p1=5), offset(p0=12, p1=5, p2=7)))

    assert event == {
        "event": "progress",
        "flow": "orders",
        "batchId": 3,
        "rowsIn": 6,
        "rowsOut": 4,
        "lag": 9,
        "batchMs": 120,
    }


def test_a_source_that_is_no_topic_has_no_lag_and_no_positions() -> None:
    told = progress({"logOffset": 3}, None, rows_out=-1)

    assert of_progress(told)["lag"] is None
    assert of_progress(told)["rowsOut"] is None
    assert positions_of(told) == {}
    assert positions_of(progress(offset(p0=3), None)) == {("orders", 0): 3}


def test_a_flow_adds_up_its_batches() -> None:
    counts = RunCounts()
    counts.add({"event": "flow", "flow": "orders", "state": "RUNNING"})
    counts.add(of_progress(progress(offset(p0=1), offset(p0=4))))
    counts.add(of_progress(progress(offset(p0=4), offset(p0=4))))
    counts.add({"event": "run", "run": 1, "state": "COMPLETED"})

    assert [one.as_fields() for one in counts.flows.values()] == [
        {
            "flow": "orders",
            "state": "RUNNING",
            "batches": 2,
            "rowsIn": 12,
            "rowsOut": 8,
            "lag": 0,
            "batchMs": 120,
        }
    ]


def test_of_an_error_with_a_traceback_the_line_is_told_that_says_what_was_wrong() -> None:
    said = (
        "[STREAM_FAILED] Failed in latestOffset: Traceback (most recent call last):\n"
        '  File "source.py", line 1, in latestOffset\n'
        "    return look_up()\n"
        "KafkaError: UNKNOWN_TOPIC_OR_PARTITION: no such topic: orders\n"
        "SQLSTATE: XXKST\n"
    )
    expected = "KafkaError: UNKNOWN_TOPIC_OR_PARTITION: no such topic: orders"
    assert describe(RuntimeError(said)) == expected
    assert describe(RuntimeError("[NOT_FOUND] no table\nmore")) == "[NOT_FOUND] no table"
    assert describe(RuntimeError()) == "RuntimeError"
