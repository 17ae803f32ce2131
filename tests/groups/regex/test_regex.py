"""Regular expressions of topic names: RE2's syntax and meaning, and bounded work whatever comes."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dohle.groups.regex.pattern import Regex, compile_regex
from tests.groups.regex.expressions import MATCHES

REFUSED = [
    ("(", "not closed"),
    ("(a", "not closed"),
    ("(a|b|", "not closed"),
    (")", "no group to close"),
    ("a)b", "no group to close"),
    ("[a-z", "not closed"),
    ("[a-", "not closed"),
    ("[", "not closed"),
    ("[]", "not closed"),
    ("[^]", "not closed"),
    ("([a-z)", "not closed"),
    ("*", "nothing to repeat"),
    ("+a", "nothing to repeat"),
    ("?", "nothing to repeat"),
    ("{2}", "nothing to repeat"),
    ("(*a)", "nothing to repeat"),
    ("a|*", "nothing to repeat"),
    ("(?i)*", "nothing to repeat"),
    ("a**", "cannot be repeated"),
    ("a*+", "cannot be repeated"),
    ("a++", "cannot be repeated"),
    ("a?+", "cannot be repeated"),
    ("a+??", "cannot be repeated"),
    ("a{2}{3}", "cannot be repeated"),
    ("a{1001}", "more than 1000"),
    ("a{1,1001}", "more than 1000"),
    ("a{9876543210}", "more than 1000"),
    ("a{" + "9" * 5000 + "}", "more than 1000"),
    ("a{2,1}", "below the lowest"),
    ("(a{1000}){1000}", "too large"),
    ("((a{100}){100}){100}", "too large"),
    ("((){1000}){1000}", "too large"),
    (r"(a)\1", "escape"),
    (r"\8", "escape"),
    (r"(?P<n>a)\k<n>", "escape"),
    ("(?P<n>a)(?P=n)", "not supported"),
    ("(?=a)", "not supported"),
    ("(?!a)", "not supported"),
    ("(?<=a)b", "lookbehind is not supported"),
    ("(?<!a)b", "lookbehind is not supported"),
    ("(?>a)", "not supported"),
    ("(?#a)", "not supported"),
    ("(?(1)a)", "not supported"),
    ("(?x)a", "not supported"),
    ("(?i", "not supported"),
    ("(?i-)a", "not supported"),
    ("(?-)a", "not supported"),
    ("(?i-s-m)a", "not supported"),
    ("(?", "not supported"),
    ("(?P<n", "group name"),
    ("(?P<n>", "not closed"),
    ("(?P<>a)", "group name"),
    ("(?<x y>a)", "group name"),
    ("(?P<n>a)(?<n>b)", "two groups"),
    ("\\", "backslash"),
    ("[\\", "backslash"),
    (r"\q", "escape"),
    (r"\C", "escape"),
    (r"\Z", "escape"),
    (r"\G", "escape"),
    (r"\h", "escape"),
    (r"\E", "escape"),
    (r"[\b]", "escape"),
    (r"[\A]", "escape"),
    (r"[a-\d]", "escape"),
    (r"\x", "escape"),
    (r"\xv", "escape"),
    (r"\x4", "escape"),
    (r"\x{}", "escape"),
    (r"\x{110000}", "escape"),
    (r"\x{41", "escape"),
    (r"\cA", "escape"),
    (r"\u0041", "escape"),
    (r"\p", "no such character class"),
    (r"\p{", "no such character class"),
    (r"\p{Foo}", "no such character class"),
    (r"\pX", "no such character class"),
    (r"[\p{Foo}]", "no such character class"),
    ("[[:foo:]]", "no such character class"),
    ("[z-a]", "ends before"),
    ("[a-Z]", "ends before"),
    ("a" * 20_000, "longer than"),
    ("a{1000}" * 9, "more than 8000"),
    ("a?" * 3000, "too complex"),
]


@pytest.mark.parametrize(("pattern", "matching", "other"), MATCHES)
def test_the_whole_name_must_match(pattern: str, matching: list[str], other: list[str]) -> None:
    regex = compile_regex(pattern)
    assert [name for name in matching if not regex.matches(name)] == []
    assert [name for name in other if regex.matches(name)] == []


@pytest.mark.parametrize(("pattern", "problem"), REFUSED, ids=[p[:30] for p, _ in REFUSED])
def test_what_re2_does_not_have_is_refused(pattern: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        compile_regex(pattern)
    assert len(str(caught.value)) < 150


def test_a_regex_tells_its_pattern() -> None:
    assert compile_regex("a+").pattern == "a+"


# Against Python's, on what both have in common.

CLASSES = r"a b c - . \. \n [ab] [^a] [b-] [a-c] [^\d] \d \w \W (?i:A) (?i:[A-B]) (?s:.)"
ASSERTIONS = r"^ $ \b \A (?:)"
ATOMS = st.sampled_from([*CLASSES.split(), *ASSERTIONS.split()])


def _extended(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    quantifiers = ["*", "+", "?", "*?", "+?", "??", "{2}", "{0}", "{1,3}", "{0,2}", "{2,}", "{1}"]
    return st.one_of(
        st.lists(inner, max_size=4).map("".join),
        st.lists(inner, min_size=1, max_size=3).map("|".join).map("(?:{})".format),
        st.tuples(inner, st.sampled_from(quantifiers)).map(lambda pair: f"({pair[0]}){pair[1]}"),
    )


PATTERNS = st.recursive(ATOMS, _extended, max_leaves=12)
NAMES = st.text("aAbBc-1_.\n", max_size=8)


@given(pattern=PATTERNS, names=st.lists(NAMES, min_size=1, max_size=8))
@example(pattern="(?:$|a)+", names=["a", "aa"])
@example(pattern="(^|a){2,}", names=["", "a", "aa"])
def test_it_agrees_with_python(pattern: str, names: list[str]) -> None:
    # Python's $ also matches before a newline at the end; \Z is what RE2's $ is.
    reference = re.compile(pattern.replace("$", r"\Z"), re.ASCII)
    regex = compile_regex(pattern)
    for name in names:
        assert regex.matches(name) == (reference.fullmatch(name) is not None), name


@given(st.text(r"ab(|)[]*+?{}1,\^$.-:<>PQEidpx=!", max_size=30))
def test_any_text_is_compiled_or_refused_with_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        compile_regex(text).matches("ab-1")


# The work is bounded. A step is an operation of bounded cost; time is not measured.

EVIL = [
    "(a*)*b",
    "(a+)+b",
    "(a|a)*b",
    "(a|aa)+b",
    "((a*)*)*b",
    "(.*)*.*b",
    "(.*a){20}b",
    "(a?){50}a{50}b",
    "a?" * 1000 + "a{10}b",
    "(?:.*a.{200})b",
    "(.?a|b){300}",
    "(a|b)*a(a|b){500}c",
    r"(\b.*\B)*b",
    "(((((((a*)+)?)+)*)+)*)+b",
    "(^|a|$)*b",
    "(?i)" + "|".join(f"{first}.*{second}" for first in "abcdefgh" for second in "abcdefgh"),
]
LONG_NAMES = ["a" * 249, "ab" * 124, "aab" * 83, "a" * 120 + "b" * 129, "-".join(["a"] * 125)]


@pytest.mark.parametrize("pattern", EVIL, ids=[pattern[:20] for pattern in EVIL])
def test_an_evil_pattern_takes_a_bounded_number_of_steps(pattern: str) -> None:
    regex = compile_regex(pattern)
    for name in LONG_NAMES:
        before = regex.steps
        regex.matches(name)
        assert regex.steps - before <= 2 * (len(name) + 20) * regex.size


def test_a_second_look_at_the_same_name_takes_one_step_for_each_character() -> None:
    regex = compile_regex("(?:a|aa)+-.*b")
    name = "aaa-" + "x" * 100 + "b"
    assert regex.matches(name)
    before = regex.steps
    assert regex.matches(name)
    assert regex.steps - before == len(name)


def test_a_match_that_takes_too_many_steps_goes_on_where_it_was() -> None:
    regex = compile_regex("(a?b?){400}")
    whole, pieces = compile_regex(regex.pattern), 1
    name = "ab" * 124
    while (found := regex.matches_within(2_000, name)) is None:
        pieces += 1
    assert found == whole.matches(name)
    assert pieces > 10
    # What it had found out is walked through again, at one step for each character.
    assert regex.steps - whole.steps <= pieces * len(name)
    assert regex.matches_within(2_000, name)


def test_a_class_of_many_characters_has_each_range_once() -> None:
    regex = compile_regex("[" + "xyz" * 1_000 + "a-ca-c]+")
    assert regex.size < 20
    assert regex.matches("xaz")
    assert not regex.matches("xd")


def _remembered(regex: Regex) -> int:
    """Count what is reachable of what a regex remembers."""
    seen, todo = set(), [regex._start, *regex._states.values()]
    transitions = 0
    while todo:
        state = todo.pop()
        if id(state) not in seen:
            seen.add(id(state))
            transitions += len(state.next)
            todo.extend(state.next.values())
    return transitions


def test_what_is_remembered_is_bounded_and_forgetting_changes_no_answer() -> None:
    # Has 2**500 states if made deterministic.
    regex = compile_regex("(a|b)*a(a|b){499}")
    for number in range(40):
        name = "".join("ab"[(number * position * position >> 3) % 2] for position in range(600))
        assert regex.matches(name) == (name[-500] == "a")
        assert _remembered(regex) <= regex._remembered_max


def test_characters_without_number_are_not_all_remembered() -> None:
    regex = compile_regex(".*")
    assert all(regex.matches(chr(0x4E00 + number)) for number in range(6000))
    assert _remembered(regex) <= regex._remembered_max
    assert len(regex._takers) <= regex._remembered_max
