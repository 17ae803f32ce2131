"""Offset commits, offset fetches and heartbeats: what a member costs in a stable group."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from bench.coordinators.client import (
    again,
    check_commit,
    check_offset_fetch,
    commit_frame,
    connect_many,
    converse,
    find_coordinators,
    offset_fetch_frame,
    ping_frame,
)
from bench.coordinators.members import ClassicGroup, ClassicMember, check_heartbeat
from bench.processes import Process, Sample, broker, rounds_of
from bench.raw_client import (
    appended_at,
    build_batch,
    call,
    create_topics,
    pour,
    produce_frame,
    repeat,
)
from bench.report import Row
from dohle.core.ids import TopicName

PARTITIONS = 100
CONNECTIONS = 20
_TOPIC = TopicName("committed")


class _Case(NamedTuple):
    """A request of each connection, how an answer to it is checked, and how many are sent."""

    name: str
    frames: Sequence[bytes]
    check: Callable[[bytes], object]
    share: int = 1


def rows(quick: bool) -> list[Row]:
    """Measure all cases; every connection is a member of a group of its own."""
    count, rounds = (4_000, 3) if quick else (10_000, 3)
    settings = {"num_partitions": str(PARTITIONS), "group_initial_rebalance_delay_ms": "0"}
    with broker(**settings) as server, ExitStack() as stack:
        create_topics(server.address, [_TOPIC])
        find_coordinators(server.address, 0)
        sockets = connect_many(stack, server.address, CONNECTIONS)
        cases = _cases(_joined(sockets))
        measured: dict[str, Callable[[], Sample]] = {}
        for case in cases:
            measured |= _both_ways(server, sockets, case, count)
        medians = rounds_of(measured, rounds)
    found = []
    for case in cases[1:]:
        for how in ("pipelined", f"{CONNECTIONS} connections"):
            ours, ping = medians[f"{case.name}, {how}"], medians[f"{cases[0].name}, {how}"]
            found.append(
                Row(
                    "offsets",
                    f"{case.name}, {how} ({ours.requests / ours.seconds:,.0f}/s)",
                    "CPU µs",
                    ours.cpu_us_per_request,
                    f"ping ({ping.requests / ping.seconds:,.0f}/s)",
                    ping.cpu_us_per_request,
                )
            )
    return found


def _joined(sockets: list[socket.socket]) -> list[ClassicMember]:
    groups = [ClassicGroup(f"committing-{n}", _TOPIC, 1) for n in range(len(sockets))]
    members = [ClassicMember(group) for group in groups]
    talks = [member.join() for member in members]
    converse(list(zip(sockets, talks, strict=True)))
    return members


def _cases(members: list[ClassicMember]) -> list[_Case]:
    def commits(partitions: int) -> list[bytes]:
        return [
            commit_frame(
                member.group.group_id, member.member_id, member.generation, _TOPIC, partitions
            )
            for member in members
        ]

    def fetches(partitions: int) -> list[bytes]:
        return [offset_fetch_frame(member.group.group_id, _TOPIC, partitions) for member in members]

    produces = [produce_frame(_TOPIC, build_batch(100, 1), n) for n in range(len(members))]
    return [
        _Case("ping", [ping_frame()] * len(members), len),
        _Case("produce of 1 record, acks=all", produces, appended_at),
        _Case("heartbeat", [member.heartbeat_frame() for member in members], check_heartbeat),
        _Case("commit of 1 partition", commits(1), check_commit),
        _Case(f"commit of {PARTITIONS} partitions", commits(PARTITIONS), check_commit, 20),
        _Case("fetch of 1 offset", fetches(1), check_offset_fetch),
        _Case(f"fetch of {PARTITIONS} offsets", fetches(PARTITIONS), check_offset_fetch, 20),
    ]


def _both_ways(
    server: Process, sockets: list[socket.socket], case: _Case, count: int
) -> dict[str, Callable[[], Sample]]:
    """Measure many in flight on one connection, and one in flight on each of many."""
    count = max(count // case.share, len(sockets))
    load = repeat(case.frames[0], count)
    each = count // len(sockets)

    def pipelined() -> Sample:
        answer = call(sockets[0], case.frames[0])
        last: list[bytes] = []
        sample = server.measure(
            load.size, count, lambda: last.append(pour(sockets[0], load, len(answer)))
        )
        case.check(last[0])
        return sample

    def on_many() -> Sample:
        talks = [
            (sock, again(request, each, case.check))
            for sock, request in zip(sockets, case.frames, strict=True)
        ]
        requests = each * len(sockets)
        return server.measure(requests * len(case.frames[0]), requests, lambda: converse(talks))

    return {
        f"{case.name}, pipelined": pipelined,
        f"{case.name}, {CONNECTIONS} connections": on_many,
    }
