"""How the figures of two servers are compared, shown and kept; nothing is measured here."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from bench.comparison.figures import Comparison, Measure
from bench.comparison.plot import svg
from bench.comparison.results import Report
from bench.comparison.table import cells, markdown, number
from bench.comparison.warm_up import Limits, Phase, WarmUp, WarmUps
from bench.versus.figures import DOHLE, KAFKA, Figure, compare
from bench.versus.profile import Stacks

FASTER = Comparison("replay", "produce", Measure.THROUGHPUT, (200.0, 90.0, 440.0), (100.0, 60, 400))
HUNGRY = Comparison("footprint", "idle <RSS>", Measure.MEMORY, (30.0, 33.0), (100.0, 100.0))


def figures(rate: float, cpu: float) -> list[Figure]:
    return [
        Figure("produce", Measure.THROUGHPUT, rate),
        Figure("produce", Measure.CPU_PER_GB, cpu),
    ]


def test_the_ratio_is_the_median_of_the_rounds_ratios() -> None:
    assert FASTER.ratios == pytest.approx([2.0, 1.5, 1.1])
    assert FASTER.ratio == pytest.approx(1.5)
    assert FASTER.spread == pytest.approx((1.1, 2.0))


def test_a_goal_is_a_lower_bound_where_more_is_better_and_an_upper_bound_else() -> None:
    assert FASTER.is_reached
    assert FASTER.verdict == "reached (≥ 1)"
    assert HUNGRY.is_reached is False
    assert HUNGRY.verdict == "MISSED (≤ 0.25)"


def test_a_figure_without_a_goal_is_neither_reached_nor_missed() -> None:
    row = Comparison("latency", "p50", Measure.LATENCY, (1.0,), (2.0,))
    assert row.is_reached is None
    assert row.verdict == ""


def test_turns_become_one_comparison_for_each_case_and_measure() -> None:
    turns = {
        DOHLE: [figures(10.0, 1.0), figures(12.0, 1.5)],
        KAFKA: [figures(5.0, 2.0), figures(4.0, 3.0)],
    }
    rate, cpu = compare("replay", turns)
    assert (rate.measure, rate.dohle, rate.peer) == (Measure.THROUGHPUT, (10.0, 12.0), (5.0, 4.0))
    assert (cpu.measure, cpu.dohle, cpu.peer) == (Measure.CPU_PER_GB, (1.0, 1.5), (2.0, 3.0))


def test_servers_that_have_measured_different_cases_are_not_compared() -> None:
    with pytest.raises(ValueError, match="other cases"):
        compare("replay", {DOHLE: [figures(1.0, 1.0)], KAFKA: [figures(1.0, 1.0)[:1]]})


@pytest.mark.parametrize(
    ("value", "shown"),
    [(12_345.6, "12,346"), (45.67, "45.7"), (1.234, "1.23"), (0.01234, "0.0123")],
)
def test_numbers_have_three_figures(value: float, shown: str) -> None:
    assert number(value) == shown


def test_the_table_has_the_ratio_first_and_one_line_for_each_case() -> None:
    assert cells(FASTER)[2:4] == ("1.50", "1.10–2.00")
    *_, head, _, first, second = markdown([FASTER, HUNGRY], ["# Title"], KAFKA).splitlines()
    assert head == "| part | case | ratio | spread | dohle | Kafka | unit | goal |"
    assert first == (
        "| replay | produce | **1.50** | 1.10–2.00 | 200 | 100 | MB/s | reached (≥ 1) |"
    )
    assert "MISSED" in second


@pytest.mark.parametrize(("ours", "told"), [(1.9, False), (2.0, False), (2.5, True)])
def test_p999_is_told_beside_p99_where_it_is_worse_than_the_peers(ours: float, told: bool) -> None:
    p99 = Comparison("latency", "produce, p99", Measure.LATENCY_P99, (0.5,), (1.0,))
    tail = Comparison("latency", "produce, p99.9", Measure.LATENCY, (ours,), (2.0,))
    *_, first, _ = markdown([p99, tail], ["# Title"], KAFKA).splitlines()
    verdict = first.split(" | ")[-1]
    remark = "; p99.9 is worse: 1.25 (2.5 ms, Kafka's 2)" if told else ""
    assert verdict == f"reached (≤ 1){remark} |"


def test_the_picture_is_an_svg_with_a_point_for_each_case() -> None:
    root = ElementTree.fromstring(svg([FASTER, HUNGRY], "title", KAFKA))
    space = "{http://www.w3.org/2000/svg}"
    points = root.findall(f"{space}circle")
    width = float(root.attrib["width"])
    assert [0 < float(point.attrib["cx"]) < width for point in points] == [True, True]
    assert float(points[0].attrib["cx"]) > float(points[1].attrib["cx"])
    assert "idle <RSS> [MB]" in {text.text for text in root.findall(f"{space}text")}


def test_a_second_run_replaces_only_the_parts_it_has_measured(tmp_path: Path) -> None:
    path = tmp_path / "versus.json"
    report = Report("versus", "dohle beside Kafka", KAFKA)
    report.keep([FASTER, HUNGRY], path, quick=False)
    again = Comparison("replay", "produce", Measure.THROUGHPUT, (300.0,), (100.0,))
    report.keep([again], path, quick=True)
    found = json.loads(path.read_text())
    assert found["replay"]["cases"][0]["ratio"] == 3.0
    assert found["footprint"]["cases"][0]["dohle"] == [30.0, 33.0]
    assert (tmp_path / "versus.md").read_text().count("| footprint |") == 1
    assert (tmp_path / "versus.svg").read_text().startswith("<svg")


def test_results_say_how_long_the_warm_ups_took_and_which_have_not_settled(tmp_path: Path) -> None:
    path = tmp_path / "versus.json"
    report = Report("versus", "dohle beside Kafka", KAFKA)
    settled, given_up = WarmUp(41.2, (), Phase.SETTLED), WarmUp(120.4, (), Phase.GIVEN_UP)
    warm_ups = {"replay": WarmUps(Limits(40, 120, 4), (settled,) * 3, (given_up,) * 3)}
    report.keep([FASTER, HUNGRY], path, quick=False, warm_ups=warm_ups)
    found = json.loads(path.read_text())
    assert found["replay"]["warm_up"]["peer"] == {"seconds": [120.4] * 3, "settled": [False] * 3}
    assert "warm_up" not in found["footprint"]
    line = "| replay | 40 to 120 s | 41 s (41–41) | 120 s (120–120), settled in 0 of 3 turns |"
    assert line in (tmp_path / "versus.md").read_text().splitlines()


def test_stacks_tell_where_time_is_spent_and_below_what() -> None:
    text = (
        "run (run.py:1);recv (connection.py:7) 20\n"
        "run (run.py:1);recv (connection.py:8) 10\n"
        "run (run.py:2);send (connection.py:9) 10\n"
        "run (threading.py:9);_worker (concurrent/futures/thread.py:81) 99\n"
    )
    stacks = Stacks.parse(text)
    assert stacks.largest() == [("recv (connection.py)", 0.75), ("send (connection.py)", 0.25)]
    assert stacks.largest_with_calls()[0] == ("run (run.py)", 1.0)
