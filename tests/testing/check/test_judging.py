"""A history that was written down is judged as it was: doctored ones are found out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dohle.testing.check.__main__ import main
from dohle.testing.check.record import read_rounds, write_round
from dohle.testing.checking.checks import check
from dohle.testing.checking.history import History, Outcome, Partition

INPUT, OUTPUT = Partition("input-1", 0), Partition("output-1", 0)

Events = list[dict[str, Any]]


def history() -> History:
    """A producer, a reader, and a copier that has committed how far it has come."""
    made = History()
    made.copies.append(("input-1", "output-1", "copiers-1"))
    made.final = {INPUT: [], OUTPUT: []}
    reading = made.read_by("reader-1 #1", INPUT)
    for offset in range(5):
        send = made.send("producer-1 #1", INPUT)
        send.acknowledged(offset, offset * 1_000_000)
        made.final[INPUT].append((offset, send.value))
        reading.given(offset, send.value, offset * 2_000_000)
    transaction = made.begin("copier-1 #1")
    for offset, value in made.final[INPUT]:
        copy = made.copy("copier-1 #1", OUTPUT, value, transaction)
        copy.acknowledged(offset, offset)
        made.final[OUTPUT].append((offset, copy.value))
    made.committed(made.commit("copiers-1", {INPUT: 5}, transaction))
    transaction.outcome = Outcome.OK
    made.looked("copiers-1", INPUT, 5)
    made.send("producer-1 #1", INPUT)
    return made


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "history.jsonl"
    with path.open("w") as file:
        write_round(file, 1, history())
    return path


def final(events: Events, partition: Partition) -> list[Any]:
    (found,) = [
        each["records"]
        for each in events
        if each["event"] == "final" and (each["topic"], each["partition"]) == partition
    ]
    return list(found)


def replace_final(events: Events, partition: Partition, records: list[Any]) -> None:
    for each in events:
        if each["event"] == "final" and (each["topic"], each["partition"]) == partition:
            each["records"] = records


def lose_the_last(events: Events) -> None:
    replace_final(events, INPUT, final(events, INPUT)[:-1])


def duplicate_one(events: Events) -> None:
    records = final(events, INPUT)
    replace_final(events, INPUT, [*records, [9, records[0][1]]])


def swap_two(events: Events) -> None:
    first, second, *others = final(events, INPUT)
    replace_final(events, INPUT, [[0, second[1]], [1, first[1]], *others])


def abort_what_was_read(events: Events) -> None:
    for each in events:
        if each["event"] == "transaction":
            each["outcome"] = "failed"


def take_an_offset_back(events: Events) -> None:
    for each in events:
        if each["event"] == "looked":
            each["offset"] = 3


def judged(written: Path, out: Path) -> dict[str, Any]:
    code = main(["--judge", str(written), "--out", str(out)])
    verdict: dict[str, Any] = json.loads((out / "verdict.json").read_text())
    assert code == (0 if verdict["valid"] else 1)
    return verdict


def test_what_is_written_is_read_again(written: Path) -> None:
    (found,) = read_rounds(written).values()
    before = history()
    assert check(found) == []
    assert len(found.sends) == len(before.sends) == 11
    assert found.final == before.final
    assert [each.records for each in found.readings] == [each.records for each in before.readings]
    assert [send.outcome for send in found.sends] == [send.outcome for send in before.sends]
    assert [send.at_ns for send in found.sends][:5] == [send.at_ns for send in before.sends][:5]


def test_a_good_history_is_valid(written: Path, tmp_path: Path) -> None:
    verdict = judged(written, tmp_path / "out")
    assert verdict == {"valid": True, "rounds": 1, "records": 11, "anomalies": []}


@pytest.mark.parametrize(
    ("doctor", "expected"),
    [
        (lose_the_last, "J5"),
        (duplicate_one, "J2"),
        (swap_two, "J9"),
        (abort_what_was_read, "J3"),
        (take_an_offset_back, "G7"),
    ],
)
def test_a_doctored_history_is_not_valid(
    written: Path, tmp_path: Path, doctor: Callable[[Events], None], expected: str
) -> None:
    events = [json.loads(line) for line in written.read_text().splitlines()]
    doctor(events)
    written.write_text("".join(json.dumps(each) + "\n" for each in events))
    verdict = judged(written, tmp_path / "out")
    assert not verdict["valid"]
    assert any(f" {expected} " in each for each in verdict["anomalies"]), verdict


def test_what_is_no_history_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "history.jsonl"
    bad.write_text('{"round": 1, "event": "copies"}\n')
    assert main(["--judge", str(bad), "--out", str(tmp_path)]) == 2
    assert "history.jsonl, line 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--faults", "kill,flood"], "choose of kill, pause, stop, cut, full-disk"),
        (["--minutes", "0"], "must be positive"),
        (["--cluster", "kafka"], "needs --kafka-libs"),
    ],
)
def test_what_cannot_be_run_is_refused(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2
    assert expected in capsys.readouterr().err
