"""Runs are kept by date and commit, and the reports show the trend; nothing is measured here."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from bench.comparison.figures import Comparison, Measure
from bench.comparison.results import Report
from bench.comparison.warm_up import Limits, Phase, WarmUp, WarmUps
from bench.history import (
    FILE_NAME,
    FOLDER,
    RUNS_SHOWN,
    Figures,
    Point,
    Run,
    append,
    find_trend,
    point,
    read,
    run_of,
    show_trend,
)
from bench.machine import find_commit
from bench.report import Row, keep, stable
from hypothesis import given
from hypothesis import strategies as st

from bench import report

RUN = Run(
    date="2026-11-16 07:40",
    commit="2572dd6",
    dirty=False,
    what="versus",
    rounds=5,
    note="",
    python="3.11.7",
    cores=2,
    memory_gb=16,
    figures={"replay": {"produce [MB/s]": Point(4.4, 336.0, 76.6)}},
)
numbers = st.floats(1e-6, 1e12)
points = st.builds(Point, numbers, numbers, numbers)
figures = st.dictionaries(st.text(), st.dictionaries(st.text(), points))


def with_ratio(ratio: float) -> Run:
    return replace(RUN, figures={"replay": {"produce [MB/s]": Point(ratio, ratio, 1.0)}})


@given(figures, st.text(), st.booleans())
def test_a_run_survives_its_line_of_json(found: Figures, note: str, dirty: bool) -> None:
    run = replace(RUN, figures=found, note=note, dirty=dirty)
    line = run.to_line()
    assert "\n" not in line
    assert Run.from_line(line) == run


def test_runs_of_other_kinds_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "new" / FILE_NAME
    spark = replace(RUN, what="spark", note="a\u2028b\nc")
    for run in (RUN, spark, RUN):
        append(path, run)
    assert read(path, "versus") == [RUN, RUN]
    assert read(path, "spark") == [spark]
    assert read(tmp_path / "missing", "spark") == []


def test_a_trend_has_the_last_runs_that_measured_the_figure() -> None:
    other = replace(RUN, figures={"replay": {"fetch [MB/s]": Point(9.0, 9.0, 1.0)}, "x": {}})
    runs = [*(with_ratio(float(n)) for n in range(1, 9)), other]
    trend = find_trend(runs, "replay", "produce [MB/s]")
    assert len(trend) == RUNS_SHOWN
    assert show_trend(trend) == "4.00 → 5.00 → 6.00 → 7.00 → 8.00"
    assert find_trend(runs, "footprint", "idle [MB]") == []


def test_a_run_names_its_commit_and_whether_the_tree_was_changed(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        who = ("-c", "user.name=x", "-c", "user.email=x@y")
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    assert find_commit(tmp_path) == (None, False)
    git("init")
    git("commit", "--allow-empty", "-m", "x")
    commit, dirty = find_commit(tmp_path)
    assert commit is not None
    assert not dirty
    (tmp_path / "bench" / "results").mkdir(parents=True)
    (tmp_path / "bench" / "results" / "versus.json").touch()
    assert find_commit(tmp_path) == (commit, False)
    (tmp_path / "new.py").touch()
    assert find_commit(tmp_path) == (commit, True)


def test_a_run_tells_of_the_machine_but_not_its_name() -> None:
    run = run_of("bench", {})
    assert set(json.loads(run.to_line())) == set(json.loads(RUN.to_line()))
    assert run.cores
    assert run.memory_gb


def test_points_have_four_digits() -> None:
    assert point(123.456, 10.0) == (12.35, 123.5, 10.0)
    assert point(2.0, 1.0, ratio=1.5) == (1.5, 2.0, 1.0)


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("raw client, 1 MB batches (1,234 MB/s, 27 µs/request)", "raw client, 1 MB batches"),
        ("1 record, pipelined (36,544/s)", "1 record, pipelined"),
        ("12,000 pings", "pings"),
        ("ping (9,001/s)", "ping"),
        ("2,000/s", "2,000/s"),
        ("decode (a view)", "decode (a view)"),
    ],
)
def test_names_lose_what_was_measured_besides(name: str, kept: str) -> None:
    assert stable(name) == kept


def test_a_run_of_bench_adds_a_line_and_its_report_shows_the_trend(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    keep([Row("append", "16 KB (900 MB/s)", "µs", 30.0, "write", 20.0)], path)
    keep([Row("read", "16 KB (1,000 MB/s)", "µs", 9.0, "pread", 9.0)], path)
    keep([Row("append", "16 KB (950 MB/s)", "µs", 24.0, "write", 20.0)], path)
    assert [run.what for run in read(path, report.NAME)] == [report.NAME] * 3
    *_, append_line, read_line = (tmp_path / "bench.md").read_text().splitlines()
    assert append_line == (
        "| append | 16 KB, beside write [µs] | **1.20** | 24.0 | 20.0 | 1.50 → 1.20 |"
    )
    assert read_line == "| read | 16 KB, beside pread [µs] | **1.00** | 9 | 9 | 1.00 |"


def test_a_comparison_adds_a_line_and_its_report_shows_the_trend(tmp_path: Path) -> None:
    path = tmp_path / "versus.json"
    comparison = Report("versus", "dohle beside Kafka", "Kafka")
    once = WarmUp(41.0, (), Phase.SETTLED)
    warm_ups = {"replay": WarmUps(Limits(40, 120, 8), (once,), (replace(once, seconds=82.0),))}
    for rate in (200.0, 300.0):
        rows = [Comparison("replay", "produce", Measure.THROUGHPUT, (rate,), (100.0,))]
        comparison.keep(rows, path, quick=False, warm_ups=warm_ups)
        comparison.end(rows, path, note="warm", warm_ups=warm_ups)
    first, second = read(tmp_path / FILE_NAME, "versus")
    assert first.figures["replay"] == {
        "produce [MB/s]": (2.0, 200.0, 100.0),
        "warm-up [s]": (0.5, 41.0, 82.0),
    }
    assert (second.rounds, second.note) == (1, "warm")
    text = (tmp_path / "versus.md").read_text()
    assert f"\n- {second}\n" in text
    assert text.splitlines()[-1].endswith("| reached (≥ 1) | 2.00 → 3.00 |")


def test_the_history_that_is_kept_can_be_read() -> None:
    for what in ("versus", "spark"):
        runs = read(FOLDER / FILE_NAME, what)
        assert runs
        assert all(run.figures and run.commit for run in runs)
