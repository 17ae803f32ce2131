"""The protocols that members offer, and those that all of them know."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dohle.groups.classic.protocols import SharedProtocols, offer_at_once

NAMES = st.frozensets(st.sampled_from("abcd"), min_size=1)


@given(st.lists(st.tuples(st.booleans(), NAMES)))
def test_a_shared_protocol_is_one_that_each_member_offers(
    changes: list[tuple[bool, frozenset[str]]],
) -> None:
    shared = SharedProtocols()
    offered: list[frozenset[str]] = []
    for is_removal, names in changes:
        if is_removal and offered:
            shared.remove(offered.pop(0))
        else:
            shared.add(names)
            offered.append(names)
        if offered:
            assert shared.names == frozenset.intersection(*offered)


def test_of_two_protocols_of_one_name_the_first_counts() -> None:
    offer = offer_at_once([("b", b"1"), ("a", b"2"), ("b", b"3")])
    assert [offer.metadata(name) for name in "abc"] == [b"2", b"1", None]
    assert offer.order == ("b", "a", "b")


def test_offers_are_the_same_only_if_all_their_protocols_are_in_order() -> None:
    offer = offer_at_once([("a", b"1"), ("b", b"2")])
    assert offer == offer_at_once([("a", b"1"), ("b", b"2")])
    assert offer != offer_at_once([("b", b"2"), ("a", b"1")])
    assert offer != offer_at_once([("a", b"1"), ("b", b"2"), ("a", b"3")])
