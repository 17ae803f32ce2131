"""Stories of a quorum of three: what a person would watch for."""

from __future__ import annotations

import pytest

from dohle.core.ids import BrokerId
from dohle.core.uuid import ZERO_UUID
from dohle.raft import effects as do
from dohle.raft import events
from dohle.raft.membership import Membership, Voter
from tests.raft.simulation.world import SimulatedNode, World, directory, endpoint

SEEDS = range(5)


def quorum(seed: int, size: int = 3) -> World:
    """Return static voters that have a leader, with something committed."""
    world = World(seed)
    world.delay_ms, world.sync_ms = 1.0, 1.0
    ids = range(1, size + 1)
    voters = tuple(Voter(BrokerId(id), ZERO_UUID, (endpoint(id),)) for id in ids)
    for id in ids:
        world.add_node(id, membership=None, static_voters=voters)
    for node in world.nodes.values():
        node.start()
    assert world.run_until(10_000, lambda: has_leader(world))
    append(world)
    return world


def leader_of(world: World) -> SimulatedNode:
    leaders = [each for each in world.nodes.values() if each.raft and each.raft.is_leader]
    return max(leaders, key=lambda each: each.quorum_state or (0,))


def state_of(node: SimulatedNode) -> str:
    return type(node.raft.replica.state).__name__ if node.raft else "dead"


def has_leader(world: World) -> bool:
    """Tell whether a leader has committed something of its epoch, and all that live follow it."""
    leaders = [each for each in world.nodes.values() if each.raft and each.raft.is_leader]
    if len(leaders) != 1 or leaders[0].applied_offset < leaders[0].log.end_offset:
        return False
    states = [each.raft.replica.state for each in world.nodes.values() if each.raft]
    return len({state.epoch for state in states}) == 1


def append(world: World) -> None:
    """Append at the leader, and wait until everybody knows that it is committed."""
    leader = leader_of(world)
    assert leader.raft is not None
    leader.log.append(leader.raft.leader.epoch, world.next_payload())
    leader.handle(events.LogChanged())
    end = leader.log.end_offset
    alive = [each for each in world.nodes.values() if each.is_alive]
    assert world.run_until(
        world.now_ms + 3_000, lambda: all(each.applied_offset >= end for each in alive)
    )


def cut_off(world: World, node: SimulatedNode) -> None:
    others = [id for id in world.nodes if id != node.id]
    world.cut = {(node.id, id) for id in others} | {(id, node.id) for id in others}


@pytest.mark.parametrize("seed", SEEDS)
def test_commits_are_known_everywhere_at_once(seed: int) -> None:
    """R52: a round trip or two, not the 500 ms of a fetch that waits."""
    world = quorum(seed)
    begin = world.now_ms
    for _ in range(5):
        append(world)
    assert world.now_ms - begin < 5 * 40


@pytest.mark.parametrize("seed", SEEDS)
def test_h31_a_voter_that_has_lost_its_disk_votes_no_more_and_catches_up(seed: int) -> None:
    """KAFKA-12181, KIP-853: it has voted in this very epoch. The world looks at R4 and R13."""
    world = World(seed)
    world.delay_ms, world.sync_ms = 1.0, 1.0
    ids = (1, 2, 3)
    voters = tuple(Voter(BrokerId(id), directory(id), (endpoint(id),)) for id in ids)
    for id in ids:
        world.add_node(id, membership=Membership(1, voters), servers=ids)
    for node in world.nodes.values():
        node.start()
    assert world.run_until(10_000, lambda: has_leader(world))
    append(world)
    leader = leader_of(world)
    other, lost = (each for each in world.nodes.values() if each is not leader)
    lost.crash()
    anew = world.add_node(lost.id, membership=None, generation=1, servers=ids)
    anew.start()
    leader.crash()
    world.run_until(world.now_ms + 20_000)
    # With the leader gone, the only other voter that is left would need this one's vote.
    assert other.raft is not None
    assert not other.raft.is_leader
    assert anew.raft is not None
    assert not anew.raft.is_leader
    assert anew.quorum_state is None or anew.quorum_state.voted is None
    leader.start()
    assert world.run_until(world.now_ms + 20_000, lambda: has_leader(world))
    append(world)
    assert anew.applied_offset == leader_of(world).log.end_offset
    assert leader_of(world) is not anew
    assert leader_of(world).log.memberships.latest.voters == voters


@pytest.mark.parametrize("seed", SEEDS)
def test_a_voter_that_was_cut_off_disturbs_nobody_when_it_comes_back(seed: int) -> None:
    """R133, and R8 of the invariants: no new epoch."""
    world = quorum(seed)
    leader = leader_of(world)
    other = next(each for each in world.nodes.values() if each is not leader)
    state = leader.quorum_state
    cut_off(world, other)
    world.run_until(world.now_ms + 10_000)
    world.cut = set()
    world.run_until(world.now_ms + 5_000)
    append(world)
    assert leader_of(world) is leader
    assert leader.quorum_state == state


@pytest.mark.parametrize("seed", SEEDS)
def test_h22_a_leader_that_was_cut_off_resigns_and_loses_what_nobody_else_has(seed: int) -> None:
    """R74, R131: after 3 s; R54: its tail is cut when it comes back."""
    world = quorum(seed)
    old = leader_of(world)
    assert old.raft is not None
    cut_off(world, old)
    old.log.append(old.raft.leader.epoch, world.next_payload())
    lost = old.log.entries[-1]
    old.handle(events.LogChanged())
    world.run_until(world.now_ms + 2_000)
    assert state_of(old) == "Leader"
    world.run_until(world.now_ms + 1_600)
    assert state_of(old) != "Leader"
    world.run_until(world.now_ms + 20_000)
    new = leader_of(world)
    assert new is not old
    world.cut = set()
    assert world.run_until(world.now_ms + 10_000, lambda: has_leader(world))
    append(world)
    assert lost not in old.log.entries


@pytest.mark.parametrize("seed", SEEDS)
def test_h24_voters_that_reach_a_part_of_the_others_leave_a_good_leader_alone(seed: int) -> None:
    """KIP-996: two of five hear one other voter each; who has a majority leads, and goes on."""
    world = quorum(seed, 5)
    links = {(1, 3), (2, 4), (3, 4), (3, 5), (4, 5)}
    world.cut = {
        (one, other)
        for one in world.nodes
        for other in world.nodes
        if one != other and (min(one, other), max(one, other)) not in links
    }
    world.run_until(world.now_ms + 30_000)
    leader = leader_of(world)
    assert leader.id in (3, 4, 5), "nobody else reaches a majority"
    assert leader.raft is not None
    epoch = leader.raft.leader.epoch
    for _ in range(5):
        leader.log.append(epoch, world.next_payload())
        leader.handle(events.LogChanged())
        world.run_until(world.now_ms + 6_000)
        assert leader.raft.is_leader
        assert leader.raft.leader.epoch == epoch
        assert leader.applied_offset == leader.log.end_offset


@pytest.mark.parametrize("seed", SEEDS)
def test_after_a_crash_another_leads_and_the_old_one_follows_it(seed: int) -> None:
    """The worked example of the facts: the leader dies, another is elected, it comes back."""
    world = quorum(seed)
    old = leader_of(world)
    assert old.quorum_state is not None
    epoch = old.quorum_state.epoch
    old.crash()
    died = world.now_ms
    assert world.run_until(died + 20_000, lambda: has_leader(world))
    assert world.now_ms - died < 2_000 + 4 * 2_000
    append(world)
    old.start()
    assert state_of(old) == "Resigned"
    append(world)
    assert state_of(old) == "Follower"
    assert old.quorum_state.epoch > epoch


@pytest.mark.parametrize("seed", SEEDS)
def test_a_leader_that_stops_cleanly_is_replaced_within_a_moment(seed: int) -> None:
    """R35, R44, R45: by the voter with the longest log, without any timeout."""
    world = quorum(seed)
    old = leader_of(world)
    done: list[do.ShutdownDone] = []
    execute = old._execute

    def watch(effect: do.Effect) -> bool:
        if isinstance(effect, do.ShutdownDone):
            done.append(effect)
        return execute(effect)

    old._execute = watch  # type: ignore[method-assign]
    begin = world.now_ms
    old.handle(events.Shutdown())
    assert world.run_until(begin + 1_500, lambda: bool(done))
    assert done == [do.ShutdownDone(clean=True)]
    assert world.now_ms - begin < 600
    old.crash()
    assert world.run_until(world.now_ms + 1_000, lambda: has_leader(world))
