"""Groups of a thousand members, ten thousand groups, and members that come and go."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack

from bench.coordinators.client import (
    Conversation,
    again,
    check_commit,
    commit_frame,
    connect_many,
    converse,
    find_coordinators,
    ping_frame,
)
from bench.coordinators.members import (
    ClassicGroup,
    ClassicMember,
    ConsumerMember,
    check_consumer_heartbeat,
    check_heartbeat,
    converge,
)
from bench.processes import Process, Sample, broker, middle
from bench.raw_client import create_topics
from bench.report import Row
from dohle.core.ids import TopicName

_TOPIC = TopicName("shared")
_CONNECTIONS = 50
_REBALANCED = 100
_PROTOCOLS = ("classic", "consumer")


def rows(quick: bool) -> list[Row]:
    """Measure all cases."""
    members, groups, rounds = (200, 1_000, 1) if quick else (1_000, 10_000, 3)
    settings = {"num_partitions": str(members), "group_initial_rebalance_delay_ms": "0"}
    with broker(**settings) as server, ExitStack() as stack:
        create_topics(server.address, [_TOPIC])
        find_coordinators(server.address, 0)
        group = _LargeGroup(server, connect_many(stack, server.address, members + 1), members)
        grown = group.grow(rounds)
        rebalanced = group.rebalance(3 if quick else 7)
    with broker(**settings) as server, ExitStack() as stack:
        create_topics(server.address, [_TOPIC])
        find_coordinators(server.address, 0)
        many = _many_groups(server, connect_many(stack, server.address, _CONNECTIONS), groups)
    return [*grown, *many, *rebalanced]


class _LargeGroup:
    """Members of one group, each with a connection of its own."""

    def __init__(self, server: Process, sockets: list[socket.socket], partitions: int) -> None:
        self._server = server
        self._sockets = sockets
        self._partitions = partitions
        self._rounds = 0

    # Many members

    def grow(self, rounds: int) -> list[Row]:
        """Let all join a group at once, and then keep their sessions."""
        sockets = self._sockets[:-1]
        joins: dict[str, list[Sample]] = {protocol: [] for protocol in _PROTOCOLS}
        beats: dict[str, list[Sample]] = {protocol: [] for protocol in _PROTOCOLS}
        # The first request of a connection costs more than the others.
        self._repeated(sockets, [ping_frame()] * len(sockets), len)
        pings = []
        for _ in range(rounds):
            pings.append(self._repeated(sockets, [ping_frame()] * len(sockets), len))
            for protocol, begin in (("classic", self._join), ("consumer", self._converge)):
                sample, frames, check = begin(sockets)
                joins[protocol].append(sample)
                beats[protocol].append(self._repeated(sockets, frames, check))
        ping, found = middle(pings), []
        for protocol in _PROTOCOLS:
            what = f"{protocol}, {len(sockets):,} members"
            found += _beside_pings("groups", f"{what} join", middle(joins[protocol]), ping)
            found.append(_each("groups", f"{what}, heartbeat", middle(beats[protocol]), ping))
        return found

    def _join(
        self, sockets: list[socket.socket]
    ) -> tuple[Sample, list[bytes], Callable[[bytes], object]]:
        """Measure from the first JoinGroup until all are in one generation."""
        members = self._classic_members(len(sockets))
        sample = self._talk(sockets, [member.join() for member in members])
        return sample, [member.heartbeat_frame() for member in members], check_heartbeat

    def _converge(
        self, sockets: list[socket.socket]
    ) -> tuple[Sample, list[bytes], Callable[[bytes], object]]:
        """Measure from the first heartbeat until every partition is assigned."""
        members = list(zip(sockets, self._consumer_members(len(sockets)), strict=True))
        sample = self._count(lambda: converge(members, self._partitions))
        converse([(sock, member.beat()) for sock, member in members])
        return sample, [member.frame() for _, member in members], check_consumer_heartbeat

    def _repeated(
        self, sockets: list[socket.socket], frames: list[bytes], check: Callable[[bytes], object]
    ) -> Sample:
        talks = [again(request, 3, check) for request in frames]
        return self._talk(sockets, talks)

    # One comes, one goes

    def rebalance(self, rounds: int) -> list[Row]:
        """Let one member join a stable group, and one leave it."""
        sockets = self._sockets[: _REBALANCED + 1]
        ping = self._repeated(sockets, [ping_frame()] * len(sockets), len)
        found = []
        for protocol, measure in (("classic", self._classic), ("consumer", self._consumer)):
            samples = measure(sockets, rounds)
            for what, place in (("joins", 0), ("leaves", 1)):
                case = f"{protocol}, 1 {what} {_REBALANCED}"
                sample = middle([pair[place] for pair in samples])
                found += _beside_pings("rebalance", case, sample, ping)
        return found

    def _classic(self, sockets: list[socket.socket], rounds: int) -> list[tuple[Sample, Sample]]:
        staying = self._classic_members(len(sockets) - 1)
        group = staying[0].group
        self._talk(sockets[:-1], [member.join() for member in staying])
        found = []
        for _ in range(rounds):
            coming = ClassicMember(group)
            group.size = len(sockets)
            joined = self._talk(sockets, [*(each.stay() for each in staying), coming.join()])
            group.size = len(staying)
            left = self._talk(sockets, [*(each.stay() for each in staying), coming.leave()])
            found.append((joined, left))
        return found

    def _consumer(self, sockets: list[socket.socket], rounds: int) -> list[tuple[Sample, Sample]]:
        members = list(zip(sockets, self._consumer_members(len(sockets)), strict=True))
        partitions = self._partitions
        converge(members[:-1], partitions)
        found = []
        for _ in range(rounds):
            joined = self._count(lambda: converge(members, partitions))
            left = self._count(lambda: converge(members[:-1], partitions, leaves=members[-1]))
            members[-1] = (members[-1][0], members[-1][1].anew())
            found.append((joined, left))
        return found

    def _classic_members(self, count: int) -> list[ClassicMember]:
        self._rounds += 1
        group = ClassicGroup(f"classic-{self._rounds}", _TOPIC, count)
        return [ClassicMember(group) for _ in range(count)]

    def _consumer_members(self, count: int) -> list[ConsumerMember]:
        self._rounds += 1
        group_id = f"consumer-{self._rounds}"
        return [ConsumerMember(group_id, _TOPIC, number + 1) for number in range(count)]

    def _talk(self, sockets: list[socket.socket], talks: Sequence[Conversation]) -> Sample:
        return self._count(lambda: converse(list(zip(sockets, talks, strict=True))))

    def _count(self, load: Callable[[], int]) -> Sample:
        counts: list[int] = []
        sample = self._server.measure(0, 1, lambda: counts.append(load()))
        return sample._replace(requests=counts[0])


# Many groups


def _many_groups(server: Process, sockets: list[socket.socket], count: int) -> list[Row]:
    """Let groups of one member each join, heartbeat and commit, over a few connections."""
    members = [ClassicMember(ClassicGroup(f"group-{n}", _TOPIC, 1)) for n in range(count)]
    shares = [members[n :: len(sockets)] for n in range(len(sockets))]

    def measure(talks: Iterable[Conversation]) -> Sample:
        pairs = list(zip(sockets, talks, strict=True))
        counts: list[int] = []
        sample = server.measure(0, 1, lambda: counts.append(converse(pairs)))
        return sample._replace(requests=counts[0])

    def ping() -> Sample:
        return measure(again(ping_frame(), count // len(sockets), len) for _ in sockets)

    ping()
    pings = [ping()]
    before_mb = server.rss_mb
    joined = measure(map(_join_all, shares))
    joined_mb = server.rss_mb
    beats = measure(map(_heartbeat_all, shares))
    commits = measure(map(_commit_all, shares))
    after_mb = server.rss_mb
    pings.append(ping())
    floor, what = middle(pings), f"{count:,} groups"
    return [
        *_beside_pings("groups", f"{what} join", joined, floor),
        _each("groups", f"{what}, heartbeat", beats, floor),
        _each("groups", f"{what}, commit", commits, floor),
        Row("groups", f"{what}, memory", "MB", joined_mb, "before", before_mb),
        Row("groups", f"{what}, memory with an offset each", "MB", after_mb, "before", before_mb),
    ]


def _join_all(members: Sequence[ClassicMember]) -> Conversation:
    for member in members:
        yield from member.join()


def _heartbeat_all(members: Sequence[ClassicMember]) -> Conversation:
    for member in members:
        check_heartbeat((yield member.heartbeat_frame()))


def _commit_all(members: Sequence[ClassicMember]) -> Conversation:
    for member in members:
        group_id = member.group.group_id
        check_commit((yield commit_frame(group_id, member.member_id, member.generation, _TOPIC, 1)))


# Rows


def _each(section: str, case: str, ours: Sample, ping: Sample) -> Row:
    """Compare one request with a ping."""
    return Row(
        section,
        f"{case} ({ours.requests / ours.seconds:,.0f}/s)",
        "CPU µs",
        ours.cpu_us_per_request,
        f"ping ({ping.requests / ping.seconds:,.0f}/s)",
        ping.cpu_us_per_request,
    )


def _beside_pings(section: str, case: str, ours: Sample, ping: Sample) -> list[Row]:
    """Compare the whole of it with as many pings."""
    share = ours.requests / ping.requests
    peer = f"{ours.requests:,.0f} pings"
    return [
        Row(section, case, "ms", ours.seconds * 1e3, peer, ping.seconds * share * 1e3),
        Row(section, case, "CPU ms", ours.cpu_s * 1e3, peer, ping.cpu_s * share * 1e3),
    ]
