from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dohle.coordination.timers import Timers


def test_a_deadline_that_was_moved_away_does_not_fire_at_its_old_time() -> None:
    timers = Timers[str]()
    timers.set("a", 10)
    timers.set("a", 30)
    assert timers.pop_due(20) is None
    assert timers.next_deadline_ms() == 30
    assert timers.pop_due(30) == "a"
    assert timers.next_deadline_ms() is None


def test_a_deadline_that_was_moved_nearer_fires_once() -> None:
    timers = Timers[str]()
    timers.set("a", 30)
    timers.set("a", 10)
    assert timers.pop_due(10) == "a"
    assert timers.pop_due(100) is None


def test_a_deadline_that_was_cancelled_and_set_again_fires_at_the_new_time() -> None:
    timers = Timers[str]()
    timers.set("a", 10)
    assert timers.cancel("a")
    assert not timers.cancel("a")
    timers.set("a", 40)
    assert timers.pop_due(39) is None
    assert timers.pop_due(40) == "a"


def test_deadlines_set_and_cancelled_again_and_again_leave_nothing_behind() -> None:
    timers = Timers[int]()
    timers.set(-1, 1_000_000)
    for number in range(10_000):
        timers.set(number, 10_000 - number)
        timers.cancel(number)
    assert len(timers) == 1
    assert timers.queued_count < 1_000


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["set", "cancel", "pop"]),
            st.integers(min_value=0, max_value=5),
            st.integers(min_value=0, max_value=100),
        ),
        max_size=200,
    )
)
def test_timers_behave_like_a_plain_table_of_deadlines(
    steps: list[tuple[str, int, int]],
) -> None:
    timers, model = Timers[int](), dict[int, int]()
    for step, key, at in steps:
        if step == "set":
            timers.set(key, at)
            model[key] = at
        elif step == "cancel":
            assert timers.cancel(key) == (model.pop(key, None) is not None)
        else:
            popped = timers.pop_due(at)
            due = {each: when for each, when in model.items() if when <= at}
            if popped is None:
                assert not due
            else:
                assert due[popped] == min(due.values())
                del model[popped]
        assert timers.next_deadline_ms() == min(model.values(), default=None)
        assert len(timers) == len(model)
