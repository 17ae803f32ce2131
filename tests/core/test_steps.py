"""Work in steps."""

from __future__ import annotations

from itertools import pairwise
from weakref import ref

from dohle.core.steps import let_go


class Thing:
    """Something that can be seen to be freed."""


def test_many_objects_are_freed_some_at_a_time() -> None:
    things = [Thing() for _ in range(2_000)]
    alive = [ref(thing) for thing in things]
    freed = [0, *(sum(thing() is None for thing in alive) for _ in let_go(things))]
    assert freed[-1] == 2_000
    assert max(after - before for before, after in pairwise(freed)) <= 500
