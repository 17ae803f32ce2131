"""What follows from a change of a partition: the rules one by one, and against a plain reading."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.core.ids import BrokerId
from dohle.metadata.partition import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    LeaderRecoveryState,
    PartitionImage,
)
from dohle.metadata.partition_change import Election, Rules, partition_change, with_replicas
from dohle.protocol.messages.records.cluster_metadata import PartitionChangeRecord
from tests.metadata.cluster import uuid

TOPIC = uuid(7)
Replicas = tuple[BrokerId, ...]


def ids(*numbers: int) -> Replicas:
    return tuple(map(BrokerId, numbers))


def partition(
    *replicas: int,
    isr: Replicas | None = None,
    leader: int | None = None,
    elr: Replicas = (),
    last_known: Replicas = (),
    recovery: LeaderRecoveryState = LeaderRecoveryState.RECOVERED,
) -> PartitionImage:
    isr = ids(*replicas) if isr is None else isr
    first = isr[0] if isr else NO_LEADER
    return PartitionImage(
        replicas=ids(*replicas),
        directories=tuple(uuid(100 + replica) for replica in replicas),
        isr=isr,
        leader=first if leader is None else BrokerId(leader),
        leader_epoch=3,
        partition_epoch=7,
        elr=elr,
        last_known_elr=last_known,
        leader_recovery_state=recovery,
    )


def rules(
    *active: int,
    elr: bool = False,
    min_isr: int = 1,
    election: Election = Election.ONLINE,
    level: int = 29,
    crashed: int = -1,
) -> Rules:
    return Rules(level, elr, min_isr, election, lambda _, replica: replica in active, crashed)


def change(
    before: PartitionImage, wanted: PartitionImage, by: Rules
) -> tuple[PartitionChangeRecord | None, PartitionImage]:
    """Return the record, and the partition after it."""
    versioned = partition_change(before, wanted, TOPIC, 0, by)
    if versioned is None:
        return None, before
    record = versioned.record
    assert isinstance(record, PartitionChangeRecord)
    return record, before.changed_by(record)


def shrunk(before: PartitionImage, *isr: int) -> PartitionImage:
    return replace(before, isr=ids(*isr))


def test_what_is_as_it_is_needs_no_record() -> None:
    """C3."""
    before = partition(1, 2)
    assert change(before, before, rules(1, 2)) == (None, before)


def test_a_new_leader_is_the_first_in_sync_replica_in_the_order_of_the_assignment() -> None:
    """C10, C1: leader epoch and partition epoch +1 each."""
    before = partition(1, 2, 3, isr=ids(3, 2, 1), leader=1)
    _, after = change(before, shrunk(before, 3, 2), rules(2, 3))
    assert (after.leader, after.isr) == (2, ids(3, 2))
    assert (after.leader_epoch, after.partition_epoch) == (4, 8)


@pytest.mark.parametrize(("level", "bumps"), [(11, True), (12, False)])
def test_below_3_6_a_smaller_isr_names_the_leader_again(level: int, bumps: bool) -> None:
    """C2."""
    before = partition(1, 2)
    record, after = change(before, shrunk(before, 1), rules(1, 2, level=level))
    assert record is not None
    assert record.leader == (1 if bumps else NO_LEADER_CHANGE)
    assert after.leader_epoch == 3 + bumps


def test_a_replica_that_is_taken_away_gives_the_leader_a_new_epoch() -> None:
    """C2."""
    before = partition(1, 2, 3)
    wanted = with_replicas(before, ids(1, 2), lambda _: uuid(1))
    _, after = change(before, shrunk(wanted, 1, 2), rules(1, 2, 3))
    assert (after.leader, after.leader_epoch, after.replicas) == (1, 4, ids(1, 2))
    added = with_replicas(before, ids(1, 2, 3, 4), lambda _: uuid(1))
    _, after = change(before, added, rules(1, 2, 3))
    assert (after.leader_epoch, after.partition_epoch) == (3, 8)


def test_a_reassignment_is_completed_before_the_leader_and_the_eligible_follow() -> None:
    """C4, C42: the last one is in sync; the leader that goes is not even asked to stay."""
    before = replace(
        partition(1, 2, 3, 4, isr=ids(1, 2), leader=1, elr=ids(3)),
        adding_replicas=ids(4),
        removing_replicas=ids(1),
    )
    record, after = change(
        before, shrunk(before, 1, 2, 3, 4), rules(1, 2, 3, 4, elr=True, min_isr=3)
    )
    assert record is not None
    assert (after.replicas, after.isr, after.leader) == (ids(2, 3, 4), ids(2, 3, 4), 2)
    assert after.directories == tuple(uuid(100 + replica) for replica in (2, 3, 4))
    assert (after.adding_replicas, after.removing_replicas) == ((), ())
    assert (after.elr, after.last_known_elr) == ((), ())
    assert (after.leader_epoch, after.partition_epoch) == (4, 8)


def test_a_reassignment_that_is_completed_without_an_election_names_its_leader_again() -> None:
    """C4: first the election, which changes nothing, then C2."""
    before = replace(partition(2, 3, 1), adding_replicas=ids(2), removing_replicas=ids(1))
    record, after = change(before, before, rules(1, 2, 3, elr=True, min_isr=2))
    assert record is not None
    assert (record.leader, record.isr, record.eligible_leader_replicas) == (2, ids(2, 3), None)
    assert (after.replicas, after.leader_epoch, after.partition_epoch) == (ids(2, 3), 4, 8)
    assert after.directories == (uuid(102), uuid(103))


def test_what_an_unclean_election_makes_of_the_isr_wins_over_what_was_asked_for() -> None:
    """C4, C11: the ISR of whom was elected, no eligible ones, and that it may lack records."""
    before = partition(1, 2, 3, isr=ids(1), leader=1, elr=ids(2))
    record, after = change(
        before,
        shrunk(before),
        rules(3, elr=True, min_isr=2, election=Election.UNCLEAN, crashed=1),
    )
    assert record is not None
    assert (after.leader, after.isr, after.elr) == (3, ids(3), ())
    assert record.leader_recovery_state == LeaderRecoveryState.RECOVERING
    assert after.last_known_elr == ()


def test_without_elr_the_last_isr_is_kept_and_waited_for() -> None:
    """C12, C17: leader −1, ISR [x]; x back leads."""
    before = partition(1, 2, isr=ids(1))
    _, gone = change(before, shrunk(before), rules())
    assert (gone.leader, gone.isr, gone.leader_epoch) == (-1, ids(1), 4)
    _, back = change(gone, gone, rules(1))
    assert (back.leader, back.isr, back.leader_epoch) == (1, ids(1), 5)
    assert change(gone, gone, rules(2)) == (None, gone)


def test_with_elr_the_last_leader_is_eligible_and_remembered() -> None:
    """C17, C14, C13: leader −1, ISR [], ELR [x], LastKnownElr [x]; x back → leader, ISR [x]."""
    before = partition(1, 2, isr=ids(1))
    _, gone = change(before, shrunk(before), rules(elr=True))
    assert (gone.leader, gone.isr, gone.elr, gone.last_known_elr) == (-1, (), ids(1), ids(1))
    _, back = change(gone, gone, rules(1, elr=True))
    assert (back.leader, back.isr, back.elr, back.last_known_elr) == (1, ids(1), (), ())
    assert back.leader_recovery_state is LeaderRecoveryState.RECOVERED


def test_those_that_leave_below_the_minimum_are_eligible_one_after_the_other() -> None:
    """W4: min.insync.replicas 2, three replicas; the eligible one that returns leads."""

    def by(*active: int) -> Rules:
        return rules(*active, elr=True, min_isr=2)

    three = partition(1, 2, 3)
    _, two = change(three, shrunk(three, 1, 2), by(1, 2))
    assert (two.isr, two.elr) == (ids(1, 2), ())
    _, one = change(two, shrunk(two, 1), by(1))
    assert (one.isr, one.elr) == (ids(1), ids(2))
    _, none = change(one, shrunk(one), by())
    assert (none.leader, none.isr, set(none.elr), none.last_known_elr) == (-1, (), {1, 2}, ids(1))
    _, back = change(none, none, by(2))
    assert (back.leader, back.isr, back.elr, back.last_known_elr) == (2, ids(2), ids(1), ())
    _, again = change(back, shrunk(back, 2, 1), by(1, 2))
    assert (set(again.isr), again.elr) == ({1, 2}, ())


def test_a_crashed_replica_is_not_eligible_but_may_lead_if_nobody_else_ever_will() -> None:
    """U2, C13, C11: LastKnownElr elects it, unclean, RECOVERING."""
    before = partition(1, 2, isr=ids(1))
    _, gone = change(before, shrunk(before), rules(elr=True, crashed=1))
    assert (gone.leader, gone.isr, gone.elr, gone.last_known_elr) == (-1, (), (), ids(1))
    assert change(gone, gone, rules(2, elr=True)) == (None, gone)
    _, back = change(gone, gone, rules(1, elr=True))
    assert (back.leader, back.isr, back.elr, back.last_known_elr) == (1, ids(1), (), ())
    assert back.leader_recovery_state is LeaderRecoveryState.RECOVERING


def test_an_unclean_election_takes_the_first_that_is_there() -> None:
    """C10, C11: ISR = {it}, RECOVERING; only if nobody may lead cleanly."""
    before = partition(1, 2, 3, isr=ids(1))
    unclean = rules(2, 3, election=Election.UNCLEAN)
    _, after = change(before, shrunk(before), unclean)
    assert (after.leader, after.isr) == (2, ids(2))
    assert after.leader_recovery_state is LeaderRecoveryState.RECOVERING
    clean = partition(1, 2, 3, isr=ids(3, 1))
    _, after = change(clean, shrunk(clean, 3), unclean)
    assert (after.leader, after.leader_recovery_state) == (3, LeaderRecoveryState.RECOVERED)


def test_a_preferred_election_moves_the_leader_or_leaves_it() -> None:
    """C10."""
    before = partition(1, 2, 3, leader=2)
    preferred = Election.PREFERRED
    _, after = change(before, before, rules(1, 2, 3, election=preferred))
    assert after.leader == 1
    assert change(before, before, rules(2, 3, election=preferred)) == (None, before)
    leaderless = partition(1, 2, 3, isr=ids(3), leader=-1)
    _, after = change(leaderless, leaderless, rules(2, 3, election=preferred))
    assert after.leader == 3, "of others, any that may lead"


def test_a_partition_that_had_no_leader_before_elr_was_on_can_be_led_again() -> None:
    """U2: the only one that was in sync comes back after a crash."""
    before = partition(1, 2, isr=ids(1), leader=-1)
    _, gone = change(before, shrunk(before), rules(elr=True, crashed=1))
    assert (gone.isr, gone.elr, gone.last_known_elr) == ((), (), ids(1))
    _, back = change(gone, gone, rules(1, elr=True))
    assert (back.leader, back.isr) == (1, ids(1))


def test_when_elr_is_off_what_is_left_of_it_goes() -> None:
    before = partition(1, 2, isr=ids(1), elr=ids(2))
    _, after = change(before, before, rules(1, 2))
    assert after.elr == ()


SOME = st.lists(st.integers(1, 5), unique=True, max_size=5).map(lambda found: ids(*found))


@st.composite
def changes(draw: st.DrawFn) -> tuple[PartitionImage, PartitionImage, Rules, Replicas]:
    """Return a partition as it may be, another ISR for it, and who is active."""
    elr_on = draw(st.booleans())
    replicas = draw(SOME) or ids(1)
    subset = st.lists(st.sampled_from(replicas), unique=True).map(tuple)
    isr = draw(subset) or (() if elr_on else replicas[:1])
    elr = tuple(each for each in draw(subset) if each not in isr) if elr_on else ()
    leader = draw(st.sampled_from((*isr, NO_LEADER)))
    may_remember = elr_on and leader == NO_LEADER and not isr
    last_known = draw(subset.map(lambda found: found[:1])) if may_remember else ()
    before = partition(*replicas, isr=isr, leader=leader, elr=elr, last_known=last_known)
    wanted = replace(before, isr=tuple(each for each in isr if draw(st.booleans())))
    active = draw(SOME)
    crashed = draw(st.sampled_from((-1, *replicas)))
    wanted = shrunk(wanted, *(each for each in wanted.isr if each != crashed))
    # A leader leaves its ISR only with its broker.
    gone = {crashed} if leader in wanted.isr else {crashed, leader}
    active = tuple(each for each in active if each not in gone)
    election = draw(st.sampled_from(Election))
    by = rules(
        *active,
        elr=elr_on,
        min_isr=draw(st.integers(1, len(replicas))),
        election=election,
        level=draw(st.sampled_from((11, 29))) if not elr_on else 29,
        crashed=crashed,
    )
    return before, wanted, by, active


def expected_leader(
    before: PartitionImage, isr: Replicas, elr: Replicas, by: Rules, active: Replicas
) -> tuple[int, bool]:
    """Return the leader by C10 and C13, and whether it is elected uncleanly."""

    def valid(replica: int) -> bool:
        return replica in active and (replica in isr or (not isr and replica in elr))

    first = before.replicas[0]
    if by.election is Election.PREFERRED and valid(first):
        return first, False
    if valid(before.leader):
        return before.leader, False
    clean = [replica for replica in before.replicas if valid(replica)]
    if clean:
        return clean[0], False
    remembered = before.last_known_elr
    if by.elr_enabled and not isr and not elr and len(remembered) == 1 and remembered[0] in active:
        return remembered[0], True
    unclean = [replica for replica in before.replicas if replica in active]
    if by.election is Election.UNCLEAN and unclean:
        return unclean[0], True
    return -1, False


@settings(max_examples=300, deadline=None)
@given(changes())
def test_any_change_of_an_isr_is_what_the_rules_say(
    case: tuple[PartitionImage, PartitionImage, Rules, Replicas],
) -> None:
    """T1: C1-C3, C10-C14, by a reading of the rules that shares nothing with the code."""
    before, wanted, by, active = case
    record, after = change(before, wanted, by)
    isr = wanted.isr
    elr: set[BrokerId] = set()
    if by.elr_enabled and len(isr) < by.min_isr:
        elr = {*before.elr, *before.isr} - set(isr) - {BrokerId(by.crashed)}
    leader, unclean = expected_leader(before, isr, tuple(elr), by, active)
    is_new = leader != before.leader
    if is_new and unclean:
        isr, elr = ids(leader), set()
    elif is_new and leader in elr:
        isr, elr = ids(leader), elr - {BrokerId(leader)}
    keeps_isr = not isr and not by.elr_enabled
    assert after.leader == leader
    assert after.isr == (before.isr if keeps_isr else isr)
    assert set(after.elr) == elr
    bumps = by.level < 12 and not set(before.isr) <= set(after.isr)
    assert after.leader_epoch == before.leader_epoch + (is_new or bumps)
    assert after.partition_epoch == before.partition_epoch + (record is not None)
    assert (record is None) == (replace(after, partition_epoch=7) == before and not bumps)
    is_recovering = after.leader_recovery_state is LeaderRecoveryState.RECOVERING
    assert is_recovering == (is_new and unclean)
    if after.leader >= 0:
        assert after.leader in after.isr
        assert after.last_known_elr == ()
    elif by.elr_enabled and before.leader >= 0:
        assert after.last_known_elr == (before.leader,) or after.isr
