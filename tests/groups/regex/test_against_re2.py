"""Google's RE2 as the oracle: the same expressions are taken, and match the same names.

Apache Kafka's brokers have RE2/J, which follows RE2. Where the two libraries differ we follow
RE2/J, and such expressions are not made here: ``\\C`` (a single byte), Unicode's scripts and
classes (each library has its own version of Unicode), and one name for two groups (RE2/J refuses).
"""

from __future__ import annotations

import pytest
import re2
from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.groups.regex.pattern import compile_regex
from tests.groups.regex.expressions import MATCHES

OPTIONS = re2.Options()
OPTIONS.log_errors = False

CHARS = "abAB01-_.^\n é☃"

literals = st.sampled_from(
    ["a", "b", "A", "0", "-", "_", "é", r"\.", r"\-", r"\n", r"\x41", r"\101"]
)
escapes = st.sampled_from(["\\d", "\\D", "\\w", "\\W", "\\s", "\\S", ".", r"\Qa.b\E", r"\x{2603}"])
assertions = st.sampled_from(["^", "$", r"\b", r"\B", r"\A", r"\z"])
class_items = st.sampled_from(
    ["a", "b-d", "0-9", "A-Z", "_", r"\d", r"\W", r"\-", "é-☃", "[:alpha:]", "[:^digit:]"]
)
classes = st.builds(
    lambda negated, items: f"[{'^' * negated}{''.join(items)}]",
    st.booleans(),
    st.lists(class_items, min_size=1, max_size=4),
)
quantifiers = st.sampled_from(["*", "+", "?", "*?", "+?", "??", "{2}", "{0,2}", "{1,}", "{2,3}?"])
groups = st.sampled_from(["({})", "(?:{})", "(?i:{})", "(?s:{})", "(?m:{})", "(?-i:{})"])
patterns = st.recursive(
    literals | escapes | assertions | classes,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map("".join),
        st.builds("{}|{}".format, inner, inner),
        st.builds(lambda group, text: group.format(text), groups, inner),
        st.builds(lambda text, count: f"(?:{text}){count}", inner, quantifiers),
    ),
    max_leaves=8,
)
#: Anything, much of it wrong: both must find it wrong.
fragments = st.lists(
    literals
    | escapes
    | assertions
    | classes
    | quantifiers
    | st.sampled_from(list("()[]{}|\\?*+^$,-")),
    max_size=6,
).map("".join)
names = st.text(CHARS, max_size=8)


def matches_of_re2(pattern: str, texts: list[str]) -> list[bool] | None:
    try:
        compiled = re2.compile(pattern, OPTIONS)
    except re2.error:
        return None
    return [compiled.fullmatch(text) is not None for text in texts]


def our_matches(pattern: str, texts: list[str]) -> list[bool] | None:
    try:
        compiled = compile_regex(pattern)
    except ValueError:
        return None
    return [compiled.matches(text) for text in texts]


@settings(max_examples=500)
@given(patterns, st.lists(names, min_size=1, max_size=6))
def test_the_same_names_match(pattern: str, texts: list[str]) -> None:
    assert our_matches(pattern, texts) == matches_of_re2(pattern, texts)


@settings(max_examples=500)
@given(fragments, st.lists(names, min_size=1, max_size=6))
def test_the_same_expressions_are_wrong(pattern: str, texts: list[str]) -> None:
    assert our_matches(pattern, texts) == matches_of_re2(pattern, texts)


@pytest.mark.parametrize(("pattern", "matching", "other"), MATCHES, ids=[one[0] for one in MATCHES])
def test_re2_agrees_with_what_other_tests_say(
    pattern: str, matching: list[str], other: list[str]
) -> None:
    expected = [True] * len(matching) + [False] * len(other)
    assert matches_of_re2(pattern, matching + other) == expected
