"""What the log says of the quorum, by offset (KIP-853)."""

from __future__ import annotations

from dataclasses import replace

from dohle.core.ids import BrokerId, Uuid
from dohle.protocol.schema import VersionRange
from dohle.raft.membership import (
    Membership,
    MembershipHistory,
    Voter,
    VoterEndpoint,
    membership_to_repeat,
)
from dohle.records.control import ControlRecordType

HERE = VoterEndpoint("CONTROLLER", "localhost", 9093)
OWN = Voter(BrokerId(1), Uuid(b"\1" * 16), (HERE,))
OTHER = Voter(BrokerId(2), Uuid(b"\2" * 16), (), VersionRange(0, 0))
BOTH = Membership(1, (OWN, OTHER))
ALONE = Membership(1, (OWN,))


def formatted(membership: Membership) -> MembershipHistory:
    history = MembershipHistory()
    history.note(-1, membership.control_records())
    return history


def test_control_records_carry_all_there_is() -> None:
    records = BOTH.control_records()
    assert [type for type, _ in records] == [
        ControlRecordType.KRAFT_VERSION,
        ControlRecordType.KRAFT_VOTERS,
    ]
    assert Membership().after(records) == BOTH
    assert Membership().after([(ControlRecordType.LEADER_CHANGE, b"?")]) == Membership()


def test_m6_names_that_others_wrote_in_another_case_are_those_of_this_node() -> None:
    """M6 of replication.md: so a voter does not take its own entry for an old one (R109)."""
    written = Membership(1, (replace(OWN, endpoints=(HERE._replace(listener="controller"),)),))
    assert Membership().after(written.control_records()) == ALONE


def test_at_level_0_the_log_says_nothing_and_a_leader_adds_nothing() -> None:
    assert Membership().control_records() == []
    assert membership_to_repeat(MembershipHistory(), OWN) is None


def test_what_held_at_an_offset_is_known_back_to_the_newest_snapshot() -> None:
    history = formatted(ALONE)
    history.note(10, BOTH.control_records())
    history.note(20, ALONE.control_records())
    assert [history.at(offset) for offset in (0, 9, 10, 19, 20, 99)] == [
        *(ALONE, ALONE, BOTH),
        *(BOTH, ALONE, ALONE),
    ]
    history.forget_before(15)
    assert [history.at(offset) for offset in (15, 19, 20)] == [BOTH, BOTH, ALONE]
    assert history.latest == ALONE


def test_the_first_leader_repeats_what_the_formatter_has_left_and_later_ones_do_not() -> None:
    history = formatted(ALONE)
    assert membership_to_repeat(history, OWN) == ALONE
    history.note(0, ALONE.control_records())
    assert membership_to_repeat(history, OWN) is None
    again = MembershipHistory()
    again.note(99, ALONE.control_records())
    assert membership_to_repeat(again, OWN) is None, "a snapshot of the log has it"


def test_a_leader_tells_its_new_address_and_leaves_others_as_they_are() -> None:
    history = formatted(BOTH)
    history.note(0, BOTH.control_records())
    moved = Voter(OWN.id, OWN.directory_id, (HERE._replace(port=9094),))
    assert membership_to_repeat(history, moved) == Membership(1, (moved, OTHER))


def test_h31_a_node_that_was_formatted_anew_is_another_voter() -> None:
    """What that means for its vote is shown in ``simulation/test_scenarios.py``."""
    anew = Voter(OWN.id, Uuid(b"\3" * 16), (HERE,))
    assert not anew.is_same_node(OWN)
    assert ALONE.with_voter(anew) == ALONE
