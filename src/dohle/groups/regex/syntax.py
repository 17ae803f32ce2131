"""RE2's syntax: from the text of a regular expression to its tokens in postfix order.

The syntax is that of RE2/J, which Kafka's brokers use: Perl's without what needs backtracking, that
is, no backreferences, no lookaround, no possessive or atomic groups. Greedy and lazy repetition are
both accepted; for a match of the whole text they mean the same.

The parser does not recurse and the size of its output is limited, so any text is safe.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TypeAlias

from dohle.groups.regex.classes import (
    ANY,
    PERL_CLASSES,
    POSIX_CLASSES,
    Characters,
    CharClass,
    Ranges,
    unicode_class,
)

PATTERN_CHARS_MAX = 16_384
REPETITIONS_MAX = 1_000
#: After repetitions are expanded.
TOKENS_MAX = 20_000

_CODE_POINT_MAX = 0x10FFFF
_FRAGMENT_CHARS_MAX = 40
_COUNTS = re.compile(r"\{(0|[1-9][0-9]*)(,(0|[1-9][0-9]*)?)?\}")
_NAME = re.compile(r"[A-Za-z0-9_]+")
_FLAGS = re.compile(r"([imsU]*)(-[imsU]+)?([:)])")
_OCTAL = re.compile(r"0[0-7]{0,2}|[1-7][0-7]{1,2}")
_HEXADECIMAL = re.compile(r"x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]+)\})")
_CONTROL_ESCAPES = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class Assertion(Enum):
    """A condition between two characters; consumes none itself."""

    BEGIN_TEXT = auto()
    END_TEXT = auto()
    BEGIN_LINE = auto()
    END_LINE = auto()
    WORD_BOUNDARY = auto()
    NO_WORD_BOUNDARY = auto()


class Operator(Enum):
    """Combines the last one or two expressions; EMPTY is one that consumes no characters."""

    EMPTY = auto()
    CONCATENATE = auto()
    ALTERNATE = auto()
    STAR = auto()
    PLUS = auto()
    QUEST = auto()


Token: TypeAlias = CharClass | Assertion | Operator

_ESCAPED_ASSERTIONS = {
    "A": Assertion.BEGIN_TEXT,
    "z": Assertion.END_TEXT,
    "b": Assertion.WORD_BOUNDARY,
    "B": Assertion.NO_WORD_BOUNDARY,
}
_ANY_CHAR = CharClass(((ANY, False),))
_ANY_CHAR_BUT_NEWLINE = CharClass(((Ranges.spelled("\n\n"), True),))
_QUANTIFIERS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_SIMPLE_REPEATS: dict[tuple[int, int | None], list[Token]] = {
    (0, None): [Operator.STAR],
    (1, None): [Operator.PLUS],
    (0, 1): [Operator.QUEST],
    (1, 1): [],
}


def parse(pattern: str) -> list[Token]:
    """Return the tokens in postfix order; a ValueError says what RE2 does not accept."""
    if len(pattern) > PATTERN_CHARS_MAX:
        raise ValueError(f"longer than {PATTERN_CHARS_MAX} characters")
    return _Parser(pattern).parse()


@dataclass(frozen=True, slots=True)
class _Flags:
    fold_case: bool = False
    multi_line: bool = False
    dot_all: bool = False

    def changed(self, letters: str, *, to: bool) -> _Flags:
        flags = self
        for letter in letters:
            match letter:
                case "i":
                    flags = replace(flags, fold_case=to)
                case "m":
                    flags = replace(flags, multi_line=to)
                case "s":
                    flags = replace(flags, dot_all=to)
        return flags


@dataclass(slots=True)
class _Group:
    """An open group; the whole expression is one too."""

    #: The flags to restore when it is closed.
    flags: _Flags
    #: Where in the text it begins.
    text_start: int
    alternative_count: int = 0
    #: The pieces of the current alternative. The last one can still be repeated, so it is not yet
    #: concatenated with those before it.
    piece_count: int = 0
    #: Where in the output the last piece begins.
    piece_start: int = 0


class _Parser:
    """Reads once from left to right and writes to one list."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._flags = _Flags()
        self._out: list[Token] = []
        self._groups = [_Group(self._flags, 0)]
        self._names: set[str] = set()
        self._literals: dict[tuple[str, bool], CharClass] = {}

    def parse(self) -> list[Token]:
        text, after_quantifier = self._text, False
        while self._at < len(text):
            start = self._at
            counts = self._quantifier()
            if counts is None:
                self._one()
            elif after_quantifier:
                raise self._error("a repetition cannot be repeated without a group", start - 1)
            else:
                self._repeat(*counts, start)
            after_quantifier = counts is not None
        if len(self._groups) > 1:
            raise self._error("a group is not closed", self._groups[-1].text_start)
        self._finish_alternative()
        if len(self._out) > TOKENS_MAX:
            raise ValueError("too large")
        return self._out

    def _error(self, problem: str, start: int) -> ValueError:
        fragment = self._text[start : start + _FRAGMENT_CHARS_MAX]
        return ValueError(f"{problem}: {fragment!r}")

    def _one(self) -> None:
        """Read anything but a quantifier."""
        char = self._text[self._at]
        match char:
            case "(":
                self._open()
            case ")":
                self._close()
            case "[":
                self._piece(self._char_class())
            case "\\":
                self._escape()
            case _:
                self._at += 1
                self._plain(char)

    def _plain(self, char: str) -> None:
        match char:
            case "|":
                self._finish_alternative()
                self._groups[-1].piece_count = 0
            case "^":
                self._piece(
                    Assertion.BEGIN_LINE if self._flags.multi_line else Assertion.BEGIN_TEXT
                )
            case "$":
                self._piece(Assertion.END_LINE if self._flags.multi_line else Assertion.END_TEXT)
            case ".":
                self._piece(_ANY_CHAR if self._flags.dot_all else _ANY_CHAR_BUT_NEWLINE)
            case _:
                self._literal(char)

    # Output

    def _piece(self, token: Token) -> None:
        self._begin_piece()
        self._out.append(token)

    def _begin_piece(self) -> None:
        """Finish the previous piece: only the one that begins now can still be repeated."""
        group = self._groups[-1]
        if group.piece_count > 1:
            self._out.append(Operator.CONCATENATE)
        group.piece_count += 1
        group.piece_start = len(self._out)

    def _literal(self, char: str) -> None:
        key = (char, self._flags.fold_case)
        if key not in self._literals:
            self._literals[key] = CharClass(
                ((Ranges(((char, char),)), False),), fold_case=self._flags.fold_case
            )
        self._piece(self._literals[key])

    def _finish_alternative(self) -> None:
        group = self._groups[-1]
        if group.piece_count == 0:
            self._out.append(Operator.EMPTY)
        elif group.piece_count > 1:
            self._out.append(Operator.CONCATENATE)
        if group.alternative_count > 0:
            self._out.append(Operator.ALTERNATE)
        group.alternative_count += 1

    # Groups

    def _open(self) -> None:
        start, flags = self._at, self._flags
        self._at += 1
        if self._text.startswith("?", self._at):
            self._at += 1
            if self._text.startswith(("P<", "<"), self._at):
                self._name(start)
            elif not self._set_flags(start):
                return
        self._begin_piece()
        self._groups.append(_Group(flags, start))

    def _name(self, start: int) -> None:
        name_start = self._text.index("<", start) + 1
        found = _NAME.match(self._text, name_start)
        if found is None or not self._text.startswith(">", found.end()):
            raise self._error("bad group name (lookbehind is not supported)", start)
        if found[0] in self._names:
            raise self._error("two groups have this name", start)
        self._names.add(found[0])
        self._at = found.end() + 1

    def _set_flags(self, start: int) -> bool:
        """Read flags after "(?"; tell whether a group begins with them."""
        found = _FLAGS.match(self._text, self._at)
        if found is None:
            raise self._error("not supported or bad syntax", start)
        self._at = found.end()
        self._flags = self._flags.changed(found[1], to=True).changed(found[2] or "", to=False)
        return found[3] == ":"

    def _close(self) -> None:
        if len(self._groups) == 1:
            raise self._error("no group to close", self._at)
        self._at += 1
        self._finish_alternative()
        self._flags = self._groups.pop().flags

    # Repetition

    def _quantifier(self) -> tuple[int, int | None] | None:
        """Read a quantifier, if there is one: how often at least, and at most."""
        text, start = self._text, self._at
        counts = _QUANTIFIERS.get(text[start])
        if counts is not None:
            self._at += 1
        else:
            # A brace that does not begin a count stands for itself.
            found = _COUNTS.match(text, start)
            if found is None:
                return None
            self._at = found.end()
            counts = self._counts(found)
        if text.startswith("?", self._at):
            self._at += 1
        return counts

    def _counts(self, found: re.Match[str]) -> tuple[int, int | None]:
        digits = [found[1]] if found[3] is None else [found[1], found[3]]
        if any(len(number) > 4 or int(number) > REPETITIONS_MAX for number in digits):
            raise self._error(f"more than {REPETITIONS_MAX} repetitions", found.start())
        low, high = int(found[1]), int(digits[-1])
        if low > high:
            raise self._error("the highest count is below the lowest", found.start())
        return low, None if found[2] is not None and found[3] is None else high

    def _repeat(self, low: int, high: int | None, start: int) -> None:
        """Expand the repetition of the last piece."""
        group, out = self._groups[-1], self._out
        if group.piece_count == 0:
            raise self._error("nothing to repeat", start)
        if (low, high) in _SIMPLE_REPEATS:
            out += _SIMPLE_REPEATS[low, high]
            return
        piece = out[group.piece_start :]
        if len(out) + (len(piece) + 2) * (low if high is None else high) > TOKENS_MAX:
            raise self._error("too large with its repetitions expanded", start)
        del out[group.piece_start :]
        if high == 0:
            out.append(Operator.EMPTY)
            return
        times = low - 1 if high is None else low
        if times > 0:
            out += piece + [*piece, Operator.CONCATENATE] * (times - 1)
        if high is None:
            out += [*piece, Operator.PLUS, Operator.CONCATENATE]
        elif high > low:
            # (x(x(x)?)?)? and not x?x?x?: there, each x could be followed by all later ones.
            out += piece * (high - low) + [Operator.QUEST]
            out += [Operator.CONCATENATE, Operator.QUEST] * (high - low - 1)
            if low > 0:
                out.append(Operator.CONCATENATE)

    # Escapes and classes

    def _escape(self) -> None:
        start, text = self._at, self._text
        letter = text[start + 1 : start + 2]
        if letter in _ESCAPED_ASSERTIONS:
            self._at += 2
            self._piece(_ESCAPED_ASSERTIONS[letter])
        elif letter == "Q":
            end = text.find("\\E", start)
            self._at = len(text) if end < 0 else end + 2
            for char in text[start + 2 : len(text) if end < 0 else end]:
                self._literal(char)
        else:
            part = self._class_escape()
            if part is not None:
                self._piece(CharClass((part,), fold_case=self._flags.fold_case))
            else:
                self._literal(self._char_escape())

    def _class_escape(self) -> tuple[Characters, bool] | None:
        """Read an escape that stands for a set, such as \\d or \\pL, if there is one."""
        start, text = self._at, self._text
        letter = text[start + 1 : start + 2]
        if letter.lower() in PERL_CLASSES:
            self._at += 2
            return Ranges.spelled(PERL_CLASSES[letter.lower()]), letter.isupper()
        if letter not in ("p", "P"):
            return None
        name, self._at = text[start + 2 : start + 3], start + 3
        if name == "{":
            end = text.find("}", start)
            name, self._at = text[start + 3 : end] if end >= 0 else "", end + 1
        characters = unicode_class(name.removeprefix("^"))
        if characters is None:
            raise self._error("no such character class", start)
        return characters, (letter == "P") != name.startswith("^")

    def _char_escape(self) -> str:
        """Read an escape that stands for one character."""
        start, text = self._at, self._text
        letter = text[start + 1 : start + 2]
        if not letter:
            raise self._error("nothing follows the backslash", start)
        if not (letter.isascii() and letter.isalnum()):
            self._at += 2
            return letter
        if letter in _CONTROL_ESCAPES:
            self._at += 2
            return _CONTROL_ESCAPES[letter]
        if found := _OCTAL.match(text, start + 1):
            self._at = found.end()
            return chr(int(found[0], 8))
        if found := _HEXADECIMAL.match(text, start + 1):
            self._at = found.end()
            digits = (found[1] or found[2]).lstrip("0") or "0"
            if len(digits) <= 6 and int(digits, 16) <= _CODE_POINT_MAX:
                return chr(int(digits, 16))
        raise self._error("bad or unsupported escape", start)

    def _char_class(self) -> CharClass:
        start, text = self._at, self._text
        self._at += 1
        negated = text.startswith("^", self._at)
        self._at += negated
        parts: list[tuple[Characters, bool]] = []
        # There may be thousands: as one part, and each once.
        ranges: dict[tuple[str, str], None] = {}
        # A ] that comes first stands for itself.
        while not (parts or ranges) or not text.startswith("]", self._at):
            if self._at >= len(text):
                raise self._error("a character class is not closed", start)
            part = self._class_set()
            if part is not None:
                parts.append(part)
            else:
                ranges[self._class_range(start)] = None
        self._at += 1
        if ranges:
            parts.append((Ranges(tuple(ranges)), False))
        return CharClass(tuple(parts), negated, self._flags.fold_case)

    def _class_set(self) -> tuple[Characters, bool] | None:
        """Read a set by its name, such as [:alpha:] or \\d, if there is one."""
        start, text = self._at, self._text
        if text.startswith("[:", start) and (end := text.find(":]", start + 2)) >= 0:
            self._at = end + 2
            name = text[start + 2 : end]
            bounds = POSIX_CLASSES.get(name.removeprefix("^"))
            if bounds is None:
                raise self._error("no such character class", start)
            return Ranges.spelled(bounds), name.startswith("^")
        return self._class_escape() if text.startswith("\\", start) else None

    def _class_range(self, class_start: int) -> tuple[str, str]:
        start, text = self._at, self._text
        low = high = self._class_char(class_start)
        if text.startswith("-", self._at) and not text.startswith("-]", self._at):
            self._at += 1
            high = self._class_char(class_start)
            if high < low:
                raise self._error("a range ends before it begins", start)
        return low, high

    def _class_char(self, class_start: int) -> str:
        if self._at >= len(self._text):
            raise self._error("a character class is not closed", class_start)
        char = self._text[self._at]
        if char == "\\":
            return self._char_escape()
        self._at += 1
        return char
