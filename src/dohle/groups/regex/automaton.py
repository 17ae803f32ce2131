"""The automaton of a regular expression: which characters may follow which (Glushkov's).

Its states are the *positions*: the places in the expression, repetitions written out, that take a
character. Sets of positions are integers with a bit for each, so that all are advanced at once.
Most positions are followed by the next one or by themselves; the rest are *jumps*, from any
position of one set to all of another. A step costs as many operations as there are jumps, whatever
the text.

Assertions take no characters: they hold or do not hold between two of them. For each kind of
boundary between two characters there is one set of links, with each assertion either passed or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dohle.groups.regex.classes import CharClass
from dohle.groups.regex.syntax import Assertion, Operator, Token

#: Positions times jumps: bounds both the memory of an automaton and the time of a step.
LINK_BITS_MAX = 4_000_000


@dataclass(frozen=True, slots=True)
class FollowSets:
    """What may come first, last and after what, for one outcome of all assertions."""

    #: Whether the empty text matches.
    nullable: bool
    first: int
    last: int
    #: Positions followed by the next one; followed by themselves.
    chained: int
    looped: int
    jumps: tuple[tuple[int, int], ...]

    def after(self, positions: int) -> int:
        """Return the positions that may follow any of these."""
        following = (positions & self.chained) << 1 | positions & self.looped
        for sources, targets in self.jumps:
            if positions & sources:
                following |= targets
        return following


def link(tokens: Iterable[Token], passes: Callable[[Assertion], bool]) -> FollowSets:
    """Build the links; a ValueError reports too many.

    There are the most when all assertions pass: if those can be built, all can.
    """
    builder = _Builder()
    for token in tokens:
        match token:
            case CharClass():
                builder.take_char()
            case Assertion():
                builder.push(passes(token), 0, 0)
            case Operator():
                builder.operate(token)
    return builder.finish()


class _Builder:
    """Keeps, for each expression not yet used: nullable, first and last positions."""

    def __init__(self) -> None:
        self._stack: list[tuple[bool, int, int]] = []
        self._position_count = 0
        self._chained = 0
        self._looped = 0
        #: By their targets.
        self._jumps: dict[int, int] = {}
        self._jump_count = 0

    def push(self, nullable: bool, first: int, last: int) -> None:
        self._stack.append((nullable, first, last))

    def take_char(self) -> None:
        bit = 1 << self._position_count
        self._position_count += 1
        self.push(False, bit, bit)

    def operate(self, operator: Operator) -> None:
        if operator is Operator.EMPTY:
            self.push(True, 0, 0)
            return
        nullable, first, last = self._stack.pop()
        match operator:
            case Operator.QUEST:
                self.push(True, first, last)
            case Operator.STAR | Operator.PLUS:
                self._connect(last, first)
                self.push(nullable or operator is Operator.STAR, first, last)
            case Operator.ALTERNATE:
                nullable_before, first_before, last_before = self._stack.pop()
                self.push(nullable_before or nullable, first_before | first, last_before | last)
            case Operator.CONCATENATE:
                nullable_before, first_before, last_before = self._stack.pop()
                self._connect(last_before, first)
                self.push(
                    nullable_before and nullable,
                    first_before | first if nullable_before else first_before,
                    last_before | last if nullable else last,
                )

    def _connect(self, sources: int, targets: int) -> None:
        if not sources or not targets:
            return
        if sources & (sources - 1) == 0:
            if targets == sources << 1:
                self._chained |= sources
                return
            if targets == sources:
                self._looped |= sources
                return
        self._jumps[targets] = self._jumps.get(targets, 0) | sources
        self._jump_count += 1
        if self._jump_count * self._position_count > LINK_BITS_MAX:
            raise ValueError("too complex: too many repetitions and alternatives")

    def finish(self) -> FollowSets:
        nullable, first, last = self._stack.pop()
        jumps = tuple((sources, targets) for targets, sources in self._jumps.items())
        return FollowSets(nullable, first, last, self._chained, self._looped, jumps)
