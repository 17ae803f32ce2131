"""Attacks by members of groups, and by those who commit very many offsets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dohle.core.ids import GroupId, TopicName
from dohle.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from dohle.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from dohle.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from dohle.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from dohle.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from dohle.protocol.schema import Request, Response
from tests.interop.wire import Wire, frame_of
from tests.isolation.harness import assert_harmless

pytestmark = [pytest.mark.isolation, pytest.mark.timeout(600)]

MANY = 100_000
#: About as many as a batch of offsets holds.
COMMITTED = 18_000
GROUP = GroupId("g")
WIDE = TopicName("wide")
#: A classic member needs no id before its first join.
JOIN_VERSION = 3


class Attacker:
    """Sends requests, and counts their bytes."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._wire.socket.settimeout(120)
        self.sent_bytes = 0

    def ask(self, request: Request, response: type[Response], version: int) -> Any:
        frame = frame_of(request, version)
        self.sent_bytes += len(frame)
        self._wire.socket.sendall(frame)
        return self._wire.receive(response, version)


def find_coordinator(bootstrap: str) -> None:
    with Wire(bootstrap) as wire:
        request = FindCoordinatorRequest(coordinator_keys=(GROUP,))
        wire.ask(request, FindCoordinatorResponse, 4)


def test_offsets_of_very_many_partitions() -> None:
    """They are committed, fetched whole by a short request, deleted, and go with their groups."""
    partition_count = 2_000
    repeated = COMMITTED // partition_count

    def prepare(bootstrap: str) -> None:
        find_coordinator(bootstrap)
        with Wire(bootstrap) as wire:
            wire.create_topic(WIDE, partition_count)

    def commits() -> Iterator[OffsetCommitRequest]:
        for number in range(10):
            yield OffsetCommitRequest(
                group_id=GroupId(f"g{number}"),
                topics=(
                    OffsetCommitRequestTopic(
                        name=WIDE,
                        partitions=tuple(
                            OffsetCommitRequestPartition(partition_index=index, committed_offset=1)
                            for index in range(partition_count)
                        )
                        * repeated,
                    ),
                ),
            )

    def attack(bootstrap: str) -> int:
        with Wire(bootstrap) as wire:
            attacker = Attacker(wire)
            groups = []
            for commit in commits():
                groups.append(commit.group_id)
                answer = attacker.ask(commit, OffsetCommitResponse, 8)
                assert {each.error_code for each in answer.topics[0].partitions} == {0}
            everything = OffsetFetchRequest(
                groups=tuple(OffsetFetchRequestGroup(group_id=each, topics=None) for each in groups)
            )
            fetched = attacker.ask(everything, OffsetFetchResponse, 8)
            counts = {len(group.topics[0].partitions) for group in fetched.groups}
            assert counts == {partition_count}
            deletion = OffsetDeleteRequest(
                group_id=groups[0],
                topics=(
                    OffsetDeleteRequestTopic(
                        name=WIDE,
                        partitions=tuple(
                            OffsetDeleteRequestPartition(partition_index=index)
                            for index in range(partition_count)
                        ),
                    ),
                ),
            )
            assert attacker.ask(deletion, OffsetDeleteResponse, 0).error_code == 0
            goodbye = DeleteGroupsRequest(groups_names=tuple(groups))
            attacker.ask(goodbye, DeleteGroupsResponse, 1)
            return attacker.sent_bytes

    assert_harmless(attack, prepare=prepare)
