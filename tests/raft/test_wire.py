"""Every message that the machine sends can be encoded, and is understood when it is decoded."""

from __future__ import annotations

from typing import Any

import pytest

from dohle.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from dohle.protocol.messages.fetch import FetchRequest
from dohle.raft.wire import fetching_id, in_version
from tests.raft.messages import (
    SNAPSHOT,
    add_request,
    remove_request,
    snapshot_request,
    update_request,
)
from tests.raft.scripted import (
    Scripted,
    begin_request,
    end_request,
    fetch_request,
    vote_request,
)
from tests.raft.simulation.scenario import Run, Shape


def round_trip(message: Any) -> Any:
    if isinstance(message, ApiVersionsRequest | ApiVersionsResponse):
        return message
    version = type(message).VERSIONS.highest
    decoded, _ = type(message).decode(version, message.encode(version))
    return decoded


@pytest.mark.parametrize("version", range(13, FetchRequest.VERSIONS.highest + 1))
def test_a_leader_knows_who_fetches_in_any_version(version: int) -> None:
    """R47: below v15 the id is in ReplicaId."""
    sent = in_version(fetch_request(2, 1), version)
    assert isinstance(sent, FetchRequest)
    decoded, _ = FetchRequest.decode(version, sent.encode(version))
    assert fetching_id(decoded) == 2


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_a_cluster_runs_over_encoded_messages(is_dynamic: bool) -> None:
    """With snapshots, changes of voters and restarts, in the versions that Kafka 4.2 speaks."""
    faults = ("change", "crash", "snapshot", "upgrade")
    for seed in range(3):
        run = Run(seed, shape=Shape(3, int(is_dynamic), 1, is_dynamic, faults))
        run.world.transport = round_trip
        run.run()


@pytest.mark.parametrize("leads", [False, True])
def test_each_request_is_answered_in_its_own_version(leads: bool) -> None:
    """R40: endpoints go along only where a version can carry them."""
    node = Scripted()
    if leads:
        node.elect()
    else:
        node.follow(2, epoch=1)
    for request in [
        vote_request(2, 1, pre_vote=False),
        begin_request(2, 1),
        end_request(2, 1),
        fetch_request(2, 1, max_wait_ms=0),
        snapshot_request(1, SNAPSHOT),
        add_request(4, listeners=()),
        remove_request(4),
        update_request(2, epoch=0),
    ]:
        lowest = 13 if isinstance(request, FetchRequest) else 0
        for version in range(lowest, type(request).VERSIONS.highest + 1):
            response = node.receive(request, version)
            decoded, _ = type(response).decode(version, response.encode(version))
            assert type(decoded) is type(response)
