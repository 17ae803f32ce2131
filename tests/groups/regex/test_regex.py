"""Regular expressions of topic names: RE2's syntax and meaning, and bounded work whatever comes."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dohle.groups.regex.pattern import Regex, compile_regex

# Each line: the expression, names that match, names that do not.
MATCHES: list[tuple[str, list[str], list[str]]] = [
    ("", [""], ["a"]),
    ("abc", ["abc"], ["", "ab", "abcd", "xabc", "ABC"]),
    ("a.c", ["abc", "a.c", "a\u00e9c"], ["ac", "a\nc", "abbc"]),
    (r"a\.c", ["a.c"], ["abc"]),
    ("a|bc|", ["a", "bc", ""], ["b", "abc"]),
    ("(|a)b", ["b", "ab"], ["a", "aab"]),
    ("a||b", ["a", "", "b"], ["ab"]),
    ("()", [""], ["("]),
    ("foo-.*", ["foo-", "foo-bar", "foo-foo-"], ["foo", "xfoo-"]),
    ("(foo|bar)+", ["foo", "barfoo"], ["", "fobar"]),
    ("ab*c+d?", ["ac", "abbccd"], ["ab", "acdd"]),
    ("ab*?c+?d??", ["ac", "abbccd"], ["ab", "acdd"]),
    ("(?:ab)*", ["", "abab"], ["aba"]),
    ("(?P<name>a)(?<other>b)", ["ab"], ["a"]),
    # Counted repetition
    ("a{3}", ["aaa"], ["aa", "aaaa", "a{3}"]),
    ("a{2,}", ["aa", "aaaaa"], ["a"]),
    ("a{0,}", ["", "aa"], ["b"]),
    ("a{1,}", ["a", "aa"], [""]),
    ("a{0}", [""], ["a"]),
    ("a{0,1}b{1}", ["b", "ab"], ["aab", "abb"]),
    ("a{2,4}", ["aa", "aaa", "aaaa"], ["a", "aaaaa"]),
    ("a{0,3}?", ["", "a", "aaa"], ["aaaa"]),
    ("xa{2}y", ["xaay"], ["xaxay"]),
    ("(ab){2}", ["abab"], ["abb", "ab"]),
    ("(a{2}){2}", ["aaaa"], ["aa", "aaa"]),
    ("(a|b{2}){3}", ["aaa", "abba", "bbbbbb"], ["abb", "bbb"]),
    ("a{1000}", ["a" * 1000], ["a" * 999, "a" * 1001]),
    ("(a*){3}", ["", "aaaa"], ["b"]),
    ("a(){5}b", ["ab"], ["a"]),
    # Braces that are no counts
    ("a{,2}", ["a{,2}"], ["aa"]),
    ("a{", ["a{"], ["a"]),
    ("a{x}", ["a{x}"], ["a"]),
    ("a{01}", ["a{01}"], ["a"]),
    ("a{1,2", ["a{1,2"], ["a"]),
    ("}{", ["}{"], [""]),
    # Classes
    ("[abc]", ["a", "c"], ["d", "", "ab"]),
    ("[a-cx]", ["b", "x"], ["d", "-"]),
    ("[^a-c]", ["d", "\n", "^"], ["a", ""]),
    ("[]a]", ["]", "a"], ["[", "b"]),
    ("[^]a]", ["[", "b"], ["]", "a"]),
    ("[a-]", ["a", "-"], ["b"]),
    ("[-a]", ["a", "-"], ["b"]),
    ("[a-c-e]", ["b", "-", "e"], ["d"]),
    ("[a^]", ["a", "^"], ["b"]),
    ("[*+?(){}|.$]+", ["*+?(){}|.$"], ["a"]),
    ("[[]", ["["], ["]"]),
    ("[[:]", ["[", ":"], ["]"]),
    (r"[\]\\\-]", ["]", "\\", "-"], ["a"]),
    (r"[\d-z]", ["5", "-", "z"], ["a"]),
    (r"\d\D\w\W\s\S", ["1a_- x"], ["aa_- x", "1a_-xx"]),
    (r"\s", [" ", "\t", "\n", "\f", "\r"], ["\v", "\u00a0"]),
    (r"\d", ["0", "9"], ["\u0663"]),
    (r"\w", ["_", "Z"], ["\u00e9", "-"]),
    (r"[\D5]", ["a", "5"], ["4"]),
    (r"[^\w.]", ["-", " "], ["a", "."]),
    (r"[^\D]", ["7"], ["a"]),
    ("[[:alpha:]_]+", ["ab_"], ["a1"]),
    ("[[:^digit:]]", ["a"], ["1"]),
    ("[[:word:]]+", ["a_1"], ["-"]),
    ("[[:space:]]", ["\v", " "], ["a"]),
    ("[[:punct:]]+", ["!-./:@[`{~"], ["a"]),
    ("[[:xdigit:]]+", ["09afAF"], ["g"]),
    ("[[:ascii:]]", ["\0", "\x7f"], ["\x80"]),
    # Unicode classes
    (r"\pL+", ["a\u00e9\u0394"], ["1", "_"]),
    (r"\PL", ["1"], ["a"]),
    (r"\p{Lu}\p{Ll}\p{Nd}", ["Aa1", "\u0394\u03b4\u0663"], ["aA1"]),
    (r"\p{^L}\P{^N}", ["-1"], ["a1", "--"]),
    (r"[\pN\p{Pd}]+", ["1-2"], ["a"]),
    (r"[^\pL]", ["1"], ["a"]),
    (r"\p{Any}", ["\n", "a"], [""]),
    (r"\p{Greek}", ["\u03b4"], ["d", "1"]),
    (r"\p{Latin}+", ["abz"], ["1", "_", "\u03b4"]),
    (r"\p{Common}+", ["1_-."], ["a"]),
    (r"\pC", ["\0"], ["\u0378", "a"]),
    # Escapes
    (r"\a\f\n\r\t\v", ["\a\f\n\r\t\v"], ["afnrtv"]),
    (r"\x41\x{42}\x{00043}\103\0", ["ABCC\0"], ["ABC"]),
    (r"\x{10FFFF}", ["\U0010ffff"], ["x"]),
    (r"\12", ["\n"], ["12"]),
    (r"\01\011", ["\x01\t"], ["1"]),
    (r"\_\-\!\ \/\^\$\(\)", ["_-! /^$()"], [""]),
    (r"\Qa.b*\E+", ["a.b*", "a.b**"], ["a.b", "axb*"]),
    (r"\Qa\b", ["a\\b"], ["ab"]),
    (r"a\Q\E*", ["", "aa"], ["*"]),
    # Flags
    ("(?i)aBc", ["abc", "ABC", "aBc"], ["abd"]),
    ("a(?i)b", ["ab", "aB"], ["Ab"]),
    ("a(?i:b)c", ["abc", "aBc"], ["abC", "Abc"]),
    ("(a(?i)b)c", ["aBc"], ["abC"]),
    ("(?i)a(?-i)b", ["Ab", "ab"], ["AB"]),
    ("(?i)a(?-i:b)c", ["AbC"], ["ABc"]),
    ("(?i)a|b", ["A", "B"], ["C"]),
    ("(?i)[a-c]", ["B"], ["D"]),
    ("(?i)[^a-c]", ["d", "D"], ["b", "B"]),
    ("(?i)[^x]", ["a"], ["x", "X"]),
    ("(?i)k", ["k", "K", "\u212a"], ["s"]),
    ("(?i)\u212a\u017f", ["ks", "KS"], ["k"]),
    (r"(?i)\p{Lu}[[:lower:]]", ["aA"], ["a1"]),
    (r"(?i)\W", ["-"], ["k", "\u212a"]),
    ("(?i)\u0394", ["\u03b4"], ["d"]),
    ("(?s).", ["\n"], [""]),
    ("(?s)a.(?-s).", ["a\nb"], ["ab\n"]),
    ("(?sU)a.*?(?-U)b", ["a\nb"], ["a"]),
    ("(?)a", ["a"], [""]),
    # Assertions
    ("^abc$", ["abc"], ["ab", "xabc"]),
    (r"\Aabc\z", ["abc"], ["ab"]),
    ("^^a$$", ["a"], [""]),
    ("^$", [""], ["a", "\n"]),
    ("a^b", [], ["ab", "a^b"]),
    ("a$b", [], ["ab"]),
    ("(^a|b)*", ["", "a", "ab", "abb", "bb"], ["ba", "aa"]),
    ("(a|b$)*", ["", "ab", "aaa"], ["ba", "bb"]),
    ("^*a", ["a"], ["^a"]),
    ("(^|x)a", ["a", "xa"], ["ya"]),
    ("(?m)a$\n^b", ["a\nb"], ["ab"]),
    ("a$\n^b", [], ["a\nb"]),
    (r"(?m)\Aa\n^b\z", ["a\nb"], ["a\nc"]),
    ("(?m)a^b", [], ["ab"]),
    (r"a\b-\bb", ["a-b"], ["ab"]),
    (r"a\bb", [], ["ab"]),
    (r"a\Bb", ["ab"], []),
    (r"\B", [""], ["a"]),
    (r"\b", [], ["", "a"]),
    (r".*\bfoo\b.*", ["foo", "a-foo-b", "foo.bar"], ["xfoo", "foo_bar", ""]),
    (r"(\b|x)*a", ["a", "xa"], ["ya"]),
]

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
