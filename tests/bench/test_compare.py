"""How two work trees are compared; nothing is measured here."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from bench.compare.__main__ import options_of
from bench.compare.trees import NotComparable, Tree, read_rows
from bench.compare.verdict import Case, Key, Reading, Verdict, markdown, put_together
from hypothesis import given
from hypothesis import strategies as st

TIME, RATE = Key("append", "16 KB", "µs"), Key("replay", "produce", "MB/s", more_is_better=True)
values = st.floats(1e-3, 1e6)


def case(key: Key, before: list[float], after: list[float]) -> Case:
    return Case(key, tuple(map(Reading, before)), tuple(map(Reading, after)))


def beside(value: float, peer: float) -> Reading:
    return Reading(value, value / peer)


def test_a_gain_above_one_is_better_for_rates_and_for_times() -> None:
    assert case(RATE, [100.0], [125.0]).gain == pytest.approx(1.25)
    assert case(TIME, [100.0], [80.0]).gain == pytest.approx(1.25)


def test_the_gain_is_the_median_of_the_rounds_gains() -> None:
    found = case(RATE, [100.0, 50.0, 200.0], [110.0, 60.0, 100.0])
    assert found.gains == pytest.approx([1.1, 1.2, 0.5])
    assert found.gain == pytest.approx(1.1)


@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        ([90.0, 91.0, 92.0], Verdict.WORSE),
        ([96.0, 97.0, 96.0], Verdict.SAME),
        ([100.0, 99.0, 101.0], Verdict.SAME),
        ([80.0, 120.0, 90.0], Verdict.UNSURE),
        ([130.0, 120.0, 125.0], Verdict.BETTER),
    ],
)
def test_a_case_is_worse_only_beyond_the_noise_of_the_rounds(
    after: list[float], verdict: Verdict
) -> None:
    assert case(RATE, [100.0, 101.0, 99.0], after).verdict is verdict
    assert case(TIME, [1 / 100, 1 / 101, 1 / 99], [1 / one for one in after]).verdict is verdict


def test_noise_as_large_as_the_change_hides_it_until_there_are_more_rounds() -> None:
    before, after = [100.0, 80.0, 102.0], [79.0, 82.0, 81.0]
    assert case(RATE, before, after).verdict is Verdict.UNSURE
    more = [100.0] * 9
    assert case(RATE, before + more, after + [80.0] * 9).verdict is Verdict.WORSE


@pytest.mark.parametrize("rounds", [1, 2])
def test_too_few_rounds_say_nothing_about_noise(rounds: int) -> None:
    assert case(RATE, [100.0] * rounds, [10.0] * rounds).verdict is Verdict.UNSURE
    assert case(RATE, [100.0] * rounds, [999.0] * rounds).verdict is Verdict.SAME


def test_a_slower_machine_is_no_slower_dohle_where_the_peer_got_slower_too() -> None:
    before = (beside(10.0, 5.0), beside(11.0, 5.5), beside(10.5, 5.25))
    after = (beside(20.0, 10.0), beside(21.0, 10.5), beside(22.0, 11.0))
    found = Case(TIME, before, after)
    assert found.gain < 0.6
    assert found.gain_beside_peer == pytest.approx(1.0)
    assert found.verdict is Verdict.SAME
    slower = tuple(beside(one.value, 5.0) for one in after)
    assert Case(TIME, before, slower).verdict is Verdict.WORSE


def test_a_time_too_short_for_the_clock_is_compared_all_the_same() -> None:
    assert case(TIME, [0.0] * 3, [0.0] * 3).verdict is Verdict.SAME
    assert case(TIME, [0.0] * 3, [5.0] * 3).verdict is Verdict.WORSE


@given(st.lists(values, min_size=1, max_size=6), st.booleans())
def test_a_tree_is_not_worse_than_itself(same: list[float], more_is_better: bool) -> None:
    key = Key("section", "case", "unit", more_is_better)
    assert case(key, same, same).verdict is Verdict.SAME


@given(st.lists(st.tuples(values, values), min_size=1, max_size=6))
def test_what_is_worse_one_way_is_better_the_other_way(pairs: list[tuple[float, float]]) -> None:
    before, after = [list(column) for column in zip(*pairs, strict=True)]
    there, back = case(RATE, before, after), case(RATE, after, before)
    assert (there.verdict is Verdict.WORSE) == (back.verdict is Verdict.BETTER)


def test_rows_are_matched_by_what_does_not_change_from_run_to_run() -> None:
    def row(case: str, ours: float, peer: str, theirs: float) -> dict[str, object]:
        found = {"section": "append", "unit": "µs", "verdict": "", "ratio": ours / theirs}
        return {**found, "case": case, "ours": ours, "peer": peer, "theirs": theirs}

    first = read_rows([row("16 KB (900 MB/s)", 10.0, "kafka-python", 20.0)])
    second = read_rows(
        [row("16 KB (950 MB/s)", 9.0, "kafka-python", 20.0), row("16 KB (950 MB/s)", 9.0, "kio", 3)]
    )
    assert first == {TIME: Reading(10.0, 0.5)}
    assert second == {TIME: Reading(9.0, 0.45)}
    # A peer that is dohle itself changes with it.
    assert read_rows([row("16 KB", 10.0, "ping (9,000/s)", 5.0)]) == {TIME: Reading(10.0)}


def test_cases_that_only_one_tree_has_are_named() -> None:
    new = Key("commit", "delayed by 1 ms", "µs")
    cases, left = put_together(
        [{TIME: Reading(10.0)}] * 3, [{TIME: Reading(10.0), new: Reading(5.0)}] * 3
    )
    assert ([one.key for one in cases], left) == ([TIME], [new])
    lines = markdown(cases, left).splitlines()
    assert lines[2] == "| append | 16 KB | 1.00 | 1.00–1.00 |  | 10.0 | 10.0 | µs |  |"
    assert lines[-1] == "- commit: delayed by 1 ms [µs]"


def test_sections_go_by_the_names_that_a_tree_has_for_them(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    assert (tree.section_name("codec"), tree.section_name("columnar")) == ("codec", "spark-decode")
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "columnar.py").touch()
    assert tree.section_name("columnar") == "columnar"


def test_a_tree_whose_python_has_another_dohle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotComparable, match=r"no \.venv/bin/python"):
        Tree.open(tmp_path)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    with pytest.raises(NotComparable, match="not the dohle of that tree"):
        Tree.open(tmp_path)
    (tmp_path / "dohle.py").touch()
    assert Tree.open(tmp_path).path == tmp_path.resolve()


@pytest.mark.parametrize(
    "arguments",
    [
        ["a", "b", "codec", "broker", "--quick"],
        ["a", "b", "--quick", "codec", "broker"],
        ["--quick", "a", "b", "codec", "broker"],
        ["a", "b", "codec", "--quick", "broker"],
    ],
)
def test_sections_may_come_before_and_after_options(arguments: list[str]) -> None:
    options = options_of([*arguments, "--rounds", "2"])
    assert (options.before, options.after) == (Path("a"), Path("b"))
    assert (options.sections, options.quick, options.rounds) == (["codec", "broker"], True, 2)


def test_without_sections_all_are_compared_and_an_unknown_one_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert options_of(["a", "b", "--quick"]).sections == []
    with pytest.raises(SystemExit):
        options_of(["a", "b", "--quick", "nonsense"])
    assert "invalid choice: 'nonsense'" in capsys.readouterr().err
