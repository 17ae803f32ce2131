"""Regular expressions for topic names (KIP-848): RE2's syntax, in linear time and bounded memory.

Any client may send one, so neither time nor memory may depend on how malicious it is: every
character of a name is one step of the automaton (:mod:`dohle.groups.regex.automaton`), whose size
is limited when the expression is compiled. The results of steps are cached, so that the usual step
is one dict lookup; when the cache is full, it is emptied.

A malicious expression and a long name can still take tens of milliseconds. A caller that has others
to serve meanwhile asks for a limited number of steps at a time.
"""

from __future__ import annotations

from enum import Enum, auto
from math import inf

from dohle.groups.regex.automaton import FollowSets, link
from dohle.groups.regex.classes import CharClass
from dohle.groups.regex.syntax import Assertion, Token, parse

POSITIONS_MAX = 8_000
#: The size of the cache: in bits of the sets of positions, and in number.
_REMEMBERED_BITS_MAX = 8_000_000
_REMEMBERED_STEPS_MAX = 4_096


_OF_WORDS = (Assertion.WORD_BOUNDARY, Assertion.NO_WORD_BOUNDARY)
_OF_LINES = (Assertion.BEGIN_LINE, Assertion.END_LINE)


def compile_regex(text: str) -> Regex:
    """Compile; a ValueError says what is wrong, in a form that fits after a colon."""
    return Regex(text, parse(text))


class _Kind(Enum):
    """The kind of character on one side of a boundary, as far as assertions distinguish it."""

    BEGIN = auto()
    END = auto()
    WORD = auto()
    NEWLINE = auto()
    OTHER = auto()


class _State:
    """The state of the automaton after some characters."""

    __slots__ = ("accepts", "kind", "next", "positions")

    def __init__(self, positions: int, kind: _Kind) -> None:
        #: The positions that took the last character.
        self.positions = positions
        #: The kind of the last character.
        self.kind = kind
        self.next: dict[str, _State] = {}
        self.accepts: bool | None = None


#: No text that continues from here matches.
_DEAD = _State(0, _Kind.OTHER)


class Regex:
    """A compiled expression. Matching changes its cache, so it is not for several threads."""

    def __init__(self, pattern: str, tokens: list[Token]) -> None:
        self.pattern = pattern
        #: The work done so far: of the order of the characters matched times :attr:`size`.
        self.steps = 0
        self._tokens = tokens
        self._places = self._find_places(tokens)
        assertions = frozenset(token for token in tokens if isinstance(token, Assertion))
        self._has_words = not assertions.isdisjoint(_OF_WORDS)
        self._has_lines = not assertions.isdisjoint(_OF_LINES)
        position_count = sum(map(len, self._places.values()))
        if position_count > POSITIONS_MAX:
            raise ValueError(f"more than {POSITIONS_MAX} characters and classes, with repetitions")
        all_passed = link(tokens, lambda _: True)
        compared_count = sum(char_class.size for char_class in self._places)
        #: The most operations that one character can cost.
        self.size = position_count + compared_count + len(all_passed.jumps) + 1
        self._remembered_max = min(
            _REMEMBERED_STEPS_MAX, _REMEMBERED_BITS_MAX // (position_count + 1)
        )
        self._links: dict[tuple[_Kind, _Kind], FollowSets] = {}
        self._only_links = None if assertions else all_passed
        self._forget()

    @staticmethod
    def _find_places(tokens: list[Token]) -> dict[CharClass, list[int]]:
        places: dict[CharClass, list[int]] = {}
        classes = (token for token in tokens if isinstance(token, CharClass))
        for position, char_class in enumerate(classes):
            places.setdefault(char_class, []).append(position)
        return places

    def matches(self, name: str) -> bool:
        """Tell whether the whole name matches."""
        return bool(self._match(name, inf))

    def matches_within(self, steps: int, name: str) -> bool | None:
        """Tell whether the whole name matches; None if that takes many more steps than these.

        A repeated call gets further, since the results of steps are cached: for more characters
        than a topic's name can have.
        """
        return self._match(name, self.steps + steps)

    def _match(self, name: str, steps_end: float) -> bool | None:
        self.steps += len(name)
        state = self._start
        for char in name:
            following = state.next.get(char)
            if following is None:
                if self.steps > steps_end:
                    return None
                following = self._advance(state, char)
            if following is _DEAD:
                return False
            state = following
        if state.accepts is None:
            links = self._links_between(state.kind, _Kind.END)
            at_start = state.kind is _Kind.BEGIN
            state.accepts = links.nullable if at_start else bool(state.positions & links.last)
        return state.accepts

    def _forget(self) -> None:
        self._states: dict[tuple[int, _Kind], _State] = {}
        self._takers: dict[str, int] = {}
        self._remembered = 0
        self._start = _State(0, _Kind.BEGIN)

    def _advance(self, state: _State, char: str) -> _State:
        """Compute a step that is not in the cache."""
        kind = self._kind(char)
        links = self._links_between(state.kind, kind)
        self.steps += len(links.jumps) + 1
        if self._remembered >= self._remembered_max:
            self._forget()
        self._remembered += 1
        candidates = links.first if state.kind is _Kind.BEGIN else links.after(state.positions)
        positions = candidates & self._taking(char)
        following = _DEAD
        if positions:
            following = self._states.get((positions, kind)) or _State(positions, kind)
            self._states[positions, kind] = following
        state.next[char] = following
        return following

    def _taking(self, char: str) -> int:
        """Return the positions that accept a character."""
        takers = self._takers.get(char)
        if takers is None:
            self.steps += self.size
            bits = bytearray(self.size // 8 + 1)
            for char_class, places in self._places.items():
                if char in char_class:
                    for position in places:
                        bits[position >> 3] |= 1 << (position & 7)
            takers = self._takers[char] = int.from_bytes(bits, "little")
        return takers

    def _kind(self, char: str) -> _Kind:
        if self._has_lines and char == "\n":
            return _Kind.NEWLINE
        if self._has_words and char.isascii() and (char.isalnum() or char == "_"):
            return _Kind.WORD
        return _Kind.OTHER

    def _links_between(self, before: _Kind, after: _Kind) -> FollowSets:
        if self._only_links is not None:
            return self._only_links
        links = self._links.get((before, after))
        if links is None:
            self.steps += len(self._tokens)
            links = link(self._tokens, lambda assertion: _passes(assertion, before, after))
            self._links[before, after] = links
        return links


def _passes(assertion: Assertion, before: _Kind, after: _Kind) -> bool:
    match assertion:
        case Assertion.BEGIN_TEXT:
            return before is _Kind.BEGIN
        case Assertion.END_TEXT:
            return after is _Kind.END
        case Assertion.BEGIN_LINE:
            return before in (_Kind.BEGIN, _Kind.NEWLINE)
        case Assertion.END_LINE:
            return after in (_Kind.END, _Kind.NEWLINE)
        case Assertion.WORD_BOUNDARY:
            return (before is _Kind.WORD) != (after is _Kind.WORD)
        case Assertion.NO_WORD_BOUNDARY:
            return (before is _Kind.WORD) == (after is _Kind.WORD)
