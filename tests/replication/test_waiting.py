"""Requests that wait: handed out once, in time, and without leaving anything behind."""

from __future__ import annotations

import random
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from dohle.replication.waiting import Parked, Waiting


def requests(parked: list[Parked[str, str]]) -> list[str]:
    return [one.request for one in parked]


def test_a_request_is_handed_out_when_enough_has_come_over_all_its_keys() -> None:
    waiting = Waiting[str, str]()
    waiting.park("fetch", ["a", "b"], 500, needed=100)
    assert requests(waiting.progress("a", 60)) == []
    assert requests(waiting.progress("other", 60)) == []
    assert requests(waiting.progress("b", 39)) == []
    assert requests(waiting.progress("a", 1)) == ["fetch"]
    assert requests(waiting.progress("a", 1000)) == []
    assert len(waiting) == 0


def test_any_progress_is_enough_unless_more_is_needed() -> None:
    waiting = Waiting[str, str]()
    waiting.park("produce", ["a"], 500)
    assert requests(waiting.progress("a", 1)) == ["produce"]


def test_a_change_of_a_key_hands_out_all_that_watch_it_the_oldest_first() -> None:
    waiting = Waiting[str, str]()
    waiting.park("first", ["a", "b"], 500, needed=10_000)
    waiting.park("second", ["a"], 100, needed=10_000)
    waiting.park("third", ["b"], 500, needed=10_000)
    assert requests(waiting.progress("a")) == ["first", "second"]
    assert requests(waiting.progress("b")) == ["third"]


def test_requests_expire_in_the_order_of_their_deadlines() -> None:
    waiting = Waiting[str, str]()
    for request, deadline_ms in (("late", 30), ("early", 10), ("middle", 20), ("also early", 10)):
        waiting.park(request, ["a"], deadline_ms)
    assert waiting.next_deadline_ms() == 10
    assert requests(waiting.expire(9)) == []
    assert requests(waiting.expire(20)) == ["early", "also early", "middle"]
    assert waiting.next_deadline_ms() == 30
    assert requests(waiting.progress("a", 1)) == ["late"]
    assert waiting.next_deadline_ms() is None
    assert waiting.expire(1000) == []


def test_a_request_that_watches_nothing_still_expires() -> None:
    waiting = Waiting[str, str]()
    waiting.park("alone", [], 5)
    assert requests(waiting.expire(5)) == ["alone"]


def test_a_key_named_twice_counts_once() -> None:
    waiting = Waiting[str, str]()
    waiting.park("fetch", ["a", "a"], 5, needed=2)
    assert waiting.progress("a", 1) == []
    assert requests(waiting.progress("a", 1)) == ["fetch"]


def test_cancelling_takes_a_request_out_of_everything_once() -> None:
    waiting = Waiting[str, str]()
    parked = waiting.park("fetch", ["a", "b"], 5)
    assert waiting.is_watched("a")
    assert waiting.cancel(parked)
    assert not waiting.cancel(parked)
    assert not waiting.is_watched("a")
    assert waiting.watched_count == len(waiting) == 0
    assert waiting.expire(100) == []


def test_the_requests_of_a_closed_connection_go_with_it() -> None:
    waiting = Waiting[str, str]()
    waiting.park("mine", ["a"], 5, owner="me")
    waiting.park("yours", ["a"], 5, owner="you")
    waiting.park("mine too", ["b"], 5, owner="me")
    waiting.park("nobody's", ["b"], 5)
    assert requests(waiting.cancel_owner("me")) == ["mine", "mine too"]
    assert waiting.cancel_owner("me") == []
    assert requests(waiting.expire(5)) == ["yours", "nobody's"]
    assert waiting.cancel_owner("you") == []


def test_a_request_can_be_parked_again_with_its_old_deadline() -> None:
    waiting = Waiting[str, str]()
    parked = waiting.park("fetch", ["a"], 500, needed=5)
    assert waiting.progress("a", 9) == [parked]
    again = waiting.park(parked.request, parked.keys, parked.deadline_ms, needed=3)
    assert waiting.progress("a", 2) == []
    assert waiting.expire(500) == [again]


def test_what_is_remembered_of_requests_that_went_early_is_bounded() -> None:
    waiting = Waiting[int, int]()
    waiting.park(-1, [-1], 10_000_000)
    for number in range(10_000):
        waiting.park(number, [number % 7], 1_000_000 + number)
        assert len(waiting.progress(number % 7, 1)) == 1
    assert waiting.watched_count == len(waiting) == 1
    assert len(waiting._deadlines) < 200


@dataclass(eq=False)
class Plain:
    """A request in the model: a list of these is all there is."""

    number: int
    keys: set[int]
    deadline_ms: int
    missing: int
    owner: int


actions = st.lists(
    st.tuples(
        st.sampled_from(["park", "park", "progress", "change", "expire", "close", "cancel"]),
        st.integers(0, 4),
        st.integers(0, 30),
    ),
    max_size=60,
)


@given(actions=actions, seed=st.integers(0, 1000))
def test_requests_come_out_as_from_a_plain_list(
    actions: list[tuple[str, int, int]], seed: int
) -> None:
    rng = random.Random(seed)
    waiting = Waiting[int, int]()
    model: list[Plain] = []
    parked: dict[int, Parked[int, int]] = {}
    now_ms = 0
    for number, (action, key, amount) in enumerate(actions):
        due: list[Plain] = []
        found: list[Parked[int, int]] = []
        if action == "park":
            keys = {rng.randrange(5) for _ in range(amount % 4)}
            plain = Plain(number, keys, now_ms + amount, rng.randrange(1, 40), key)
            model.append(plain)
            parked[number] = waiting.park(
                number, keys, plain.deadline_ms, needed=plain.missing, owner=key
            )
        elif action == "progress":
            for plain in model:
                plain.missing -= amount if key in plain.keys else 0
            due = [plain for plain in model if key in plain.keys and plain.missing <= 0]
            found = waiting.progress(key, amount)
        elif action == "change":
            due = [plain for plain in model if key in plain.keys]
            found = waiting.progress(key)
        elif action == "expire":
            now_ms += amount
            due = [plain for plain in model if plain.deadline_ms <= now_ms]
            due.sort(key=lambda plain: plain.deadline_ms)
            found = waiting.expire(now_ms)
        elif action == "close":
            due = [plain for plain in model if plain.owner == key]
            found = waiting.cancel_owner(key)
        elif parked:
            choice = rng.choice(sorted(parked))
            due = [plain for plain in model if plain.number == choice]
            found = [parked[choice]] if waiting.cancel(parked[choice]) else []
        assert [one.request for one in found] == [plain.number for plain in due]
        model = [plain for plain in model if plain not in due]
        assert len(waiting) == len(model)
        assert waiting.watched_count == len(set().union(*(plain.keys for plain in model)))
        assert waiting.next_deadline_ms() == min(
            (plain.deadline_ms for plain in model), default=None
        )
