"""``tools/explore.py``: new examples and seeds while there is time, and how to repeat a failure."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from explore import Outcome, explore_properties, explore_seeds, property_tests, run_for

FILES = [f"tests/test_{number}.py" for number in range(20)]


class Scripted:
    """Runs nothing; gives the outcomes it was given, then successes."""

    def __init__(self, *outcomes: Outcome) -> None:
        self._outcomes = list(outcomes)
        self.commands: list[Sequence[str]] = []
        self.environments: list[Mapping[str, str]] = []

    def __call__(
        self, command: Sequence[str], environment: Mapping[str, str], seconds: float
    ) -> Outcome:
        assert seconds > 0
        self.commands.append(command)
        self.environments.append(environment)
        return self._outcomes.pop(0) if self._outcomes else Outcome(0, "")


def turns(count: int) -> Callable[[], float]:
    """Time for so many looks at it: two for each program."""
    left = iter(range(2 * count, 0, -1))
    return lambda: next(left, 0)


def test_every_file_has_its_turn_before_one_comes_again_each_with_a_new_seed() -> None:
    run = Scripted()
    assert list(explore_properties(FILES, random.Random(1), turns(8), run)) == []
    chosen = [part for command in run.commands[:4] for part in command if part in FILES]
    assert sorted(chosen) == sorted(FILES)
    assert len({command[3] for command in run.commands}) == len(run.commands) == 8
    assert run.environments == [{"DOHLE_EXPLORE": "1"}] * 8


def test_a_failing_property_is_told_with_its_seed_and_its_name() -> None:
    said = "F.\nFAILED tests/test_3.py::test_it[a b] - assert 1 == 2\n1 failed"
    run = Scripted(Outcome(0, ""), Outcome(1, said))
    (found,) = explore_properties(FILES, random.Random(1), turns(3), run)
    seed = run.commands[1][3]
    assert seed.startswith("--hypothesis-seed=")
    expected = f"DOHLE_EXPLORE=1 {sys.executable} -m pytest {seed} 'tests/test_3.py::test_it[a b]'"
    assert found == expected


@pytest.mark.parametrize("code", [None, 0, 5])
def test_what_time_cuts_off_and_a_file_without_tests_have_not_failed(code: int | None) -> None:
    run = Scripted(Outcome(code, "FAILED tests/test_3.py::test_it"))
    assert list(explore_properties(FILES, random.Random(1), turns(1), run)) == []
    assert len(run.commands) == 1


def test_a_failing_seed_is_told_as_the_simulator_tells_it() -> None:
    said = "seed 7: lost\n  to repeat: python -m dohle.testing.simulation --seed 7\n"
    run = Scripted(Outcome(1, said), Outcome(1, "Traceback"), Outcome(None, said))
    first, second = explore_seeds(random.Random(1), turns(3), run)
    assert first == "python -m dohle.testing.simulation --seed 7"
    assert second.endswith(" ".join(run.commands[1][-4:]))
    assert len({command[4] for command in run.commands}) == 3


def test_only_files_with_properties_are_chosen(tmp_path: Path) -> None:
    for name, text in {
        "core/test_a.py": "from hypothesis import given\n",
        "core/test_b.py": "import pytest\n",
        "core/helper.py": "from hypothesis import strategies\n",
        "spark/test_c.py": "from hypothesis import given\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert property_tests(tmp_path) == [tmp_path / "core" / "test_a.py"]


def test_a_program_ends_by_itself_or_when_its_time_is_up() -> None:
    code = "import os; print(os.environ['WORD'])"
    assert run_for([sys.executable, "-c", code], {"WORD": "found"}, 60) == Outcome(0, "found\n")
    waiting = "import signal; print('waiting', flush=True); signal.pause()"
    assert run_for([sys.executable, "-c", waiting], {}, 0.1).code is None
