"""Requests that wait: handed out once, in time, and without leaving anything behind."""

from __future__ import annotations

import random
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from dohle.replication.purgatory import Delayed, Purgatory


def requests(delayed: list[Delayed[str, str]]) -> list[str]:
    return [one.request for one in delayed]


def take_out(purgatory: Purgatory[str, str], key: str) -> list[str]:
    found = purgatory.watching(key)
    assert all(purgatory.cancel(one) for one in found)
    return requests(found)


def test_a_request_is_found_by_each_of_its_keys_until_it_is_taken_out() -> None:
    purgatory = Purgatory[str, str]()
    delayed = purgatory.watch("fetch", ["a", "b"], 500)
    assert purgatory.watching("a") == purgatory.watching("b") == purgatory.watching("a")
    assert requests(purgatory.watching("a")) == ["fetch"]
    assert purgatory.watching("other") == []
    assert purgatory.cancel(delayed)
    assert purgatory.watching("a") == purgatory.watching("b") == []
    assert purgatory.count == 0


def test_of_those_that_watch_a_key_the_oldest_comes_first() -> None:
    purgatory = Purgatory[str, str]()
    purgatory.watch("first", ["a", "b"], 500)
    purgatory.watch("second", ["a"], 100)
    purgatory.watch("third", ["b"], 500)
    assert take_out(purgatory, "a") == ["first", "second"]
    assert take_out(purgatory, "b") == ["third"]


def test_requests_expire_in_the_order_of_their_deadlines() -> None:
    purgatory = Purgatory[str, str]()
    for request, deadline_ms in (("late", 30), ("early", 10), ("middle", 20), ("also early", 10)):
        purgatory.watch(request, ["a"], deadline_ms)
    assert purgatory.next_deadline_ms() == 10
    assert requests(purgatory.expire(9)) == []
    assert requests(purgatory.expire(20)) == ["early", "also early", "middle"]
    assert purgatory.next_deadline_ms() == 30
    assert take_out(purgatory, "a") == ["late"]
    assert purgatory.next_deadline_ms() is None
    assert purgatory.expire(1000) == []


def test_a_request_that_watches_nothing_still_expires() -> None:
    purgatory = Purgatory[str, str]()
    purgatory.watch("alone", [], 5)
    assert requests(purgatory.expire(5)) == ["alone"]


def test_a_key_named_twice_counts_once() -> None:
    purgatory = Purgatory[str, str]()
    purgatory.watch("fetch", ["a", "a"], 5)
    assert take_out(purgatory, "a") == ["fetch"]
    assert purgatory.watched_count == purgatory.count == 0


def test_cancelling_takes_a_request_out_of_everything_once() -> None:
    purgatory = Purgatory[str, str]()
    delayed = purgatory.watch("fetch", ["a", "b"], 5)
    assert purgatory.cancel(delayed)
    assert not purgatory.cancel(delayed)
    assert purgatory.watched_count == purgatory.count == 0
    assert purgatory.expire(100) == []


def test_what_is_remembered_of_requests_that_went_early_is_bounded() -> None:
    purgatory = Purgatory[int, int]()
    purgatory.watch(-1, [-1], 10_000_000)
    for number in range(10_000):
        purgatory.cancel(purgatory.watch(number, [number % 7], 1_000_000 + number))
    assert purgatory.watched_count == purgatory.count == 1
    assert len(purgatory._deadlines) < 200


@dataclass(eq=False)
class Plain:
    """A request in the model: a list of these is all there is."""

    number: int
    keys: set[int]
    deadline_ms: int


actions = st.lists(
    st.tuples(
        st.sampled_from(["delay", "delay", "change", "expire", "cancel"]),
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
    purgatory = Purgatory[int, int]()
    model: list[Plain] = []
    delayed: dict[int, Delayed[int, int]] = {}
    now_ms = 0
    for number, (action, key, amount) in enumerate(actions):
        due: list[Plain] = []
        found: list[Delayed[int, int]] = []
        if action == "delay":
            keys = {rng.randrange(5) for _ in range(amount % 4)}
            plain = Plain(number, keys, now_ms + amount)
            model.append(plain)
            delayed[number] = purgatory.watch(number, keys, plain.deadline_ms)
        elif action == "change":
            due = [plain for plain in model if key in plain.keys]
            found = [one for one in purgatory.watching(key) if purgatory.cancel(one)]
        elif action == "expire":
            now_ms += amount
            due = [plain for plain in model if plain.deadline_ms <= now_ms]
            due.sort(key=lambda plain: plain.deadline_ms)
            found = purgatory.expire(now_ms)
        elif delayed:
            choice = rng.choice(sorted(delayed))
            due = [plain for plain in model if plain.number == choice]
            found = [delayed[choice]] if purgatory.cancel(delayed[choice]) else []
        assert [one.request for one in found] == [plain.number for plain in due]
        model = [plain for plain in model if plain not in due]
        assert purgatory.count == len(model)
        assert purgatory.watched_count == len(set().union(*(plain.keys for plain in model)))
        assert purgatory.next_deadline_ms() == min(
            (plain.deadline_ms for plain in model), default=None
        )
