"""The pool for large requests."""

from __future__ import annotations

from dohle.server.net.request_memory import RequestMemory


def nobody() -> None:
    """Nobody waits."""


def test_requests_are_let_in_as_long_as_anything_is_left() -> None:
    pool = RequestMemory(100)
    assert pool.take(99, nobody)
    # As in Kafka the last one may overdraw it.
    assert pool.take(50, nobody)
    assert not pool.take(1, nobody)
    assert pool.left == -49


def test_those_that_wait_are_called_in_order_as_soon_as_something_is_left() -> None:
    pool = RequestMemory(100)
    order: list[str] = []

    def come_again(name: str, size: int) -> None:
        if pool.take(size, lambda: come_again(name, size)):
            order.append(name)

    for name, size in (("first", 100), ("second", 100), ("third", 10)):
        come_again(name, size)
    assert order == ["first"]
    pool.give(100)
    assert order == ["first", "second"]
    pool.give(100)
    assert order == ["first", "second", "third"]
    pool.give(10)
    assert pool.left == 100
