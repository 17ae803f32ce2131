"""Envelopes: what a broker sends on to the controller in the name of a client (A10, A11)."""

from __future__ import annotations

from typing import Any

from dohle.protocol.apis import ApiKey
from dohle.protocol.framing import SIZE_BYTES, encode_request, parse_response_header
from dohle.protocol.messages.principal import DefaultPrincipalData
from tests.oracle.bodies import api_named, make_request
from tests.oracle.cluster_scenarios._nodes import ACTIVE, STANDBY, TIMEOUT, placed_topic
from tests.oracle.scenario import Client, Run

_HOST = bytes([192, 0, 2, 7])
_ALICE = b"\0\0" + DefaultPrincipalData(type="User", name="alice").encode(0)
_CORRELATION_ID = 77


def _sealed(response: Any) -> Any:
    """Leave out what is within: that is a step of its own."""
    return response.replace(response_data=b"an answer" if response.response_data else None)


async def _forward(run: Run, client: Client, name: str, version: int, /, **body: Any) -> None:
    """Send a request in an envelope, and tell of both answers."""
    request = make_request(name, version, body)
    inner = b"".join(encode_request(request, version, _CORRELATION_ID, "a client"))[SIZE_BYTES:]
    answer = await client.send(
        *("Envelope", 0),
        note=f"{name} v{version}",
        show=_sealed,
        request_data=inner,
        request_principal=_ALICE,
        client_host_address=_HOST,
    )
    if answer is not None and answer.response_data:
        data = bytes(answer.response_data)
        correlation_id, at = parse_response_header(ApiKey(request.API_KEY), version, data)
        assert correlation_id == _CORRELATION_ID
        found = api_named(name).response().from_bytes(version, data[at:])
        run.told(name, version, request, found, "in an envelope", client.at)


async def forwarded(run: Run) -> None:
    """All that brokers send on, at the active controller and at a standby."""
    new = {"name": run.name("new"), "num_partitions": 1, "replication_factor": 3}
    unknown = run.name("unknown")
    quorum = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
    await placed_topic(run, "old", [1, 2])
    for at in (STANDBY, ACTIVE):
        client = await run.client(at=at)
        for version in (2, 7):
            body = {**TIMEOUT, "topics": [new], "validate_only": True}
            await _forward(run, client, "CreateTopics", version, **body)
        await _forward(run, client, "DeleteTopics", 4, **TIMEOUT, topic_names=[run.name("old")])
        more = [{"name": unknown, "count": 4, "assignments": None}]
        await _forward(run, client, "CreatePartitions", 3, **TIMEOUT, topics=more)
        parts = [{"topic": unknown, "partitions": [0]}]
        await _forward(run, client, "ElectLeaders", 2, **TIMEOUT, topic_partitions=parts)
        moved = [{"name": unknown, "partitions": [{"partition_index": 0, "replicas": [1]}]}]
        await _forward(run, client, "AlterPartitionReassignments", 1, **TIMEOUT, topics=moved)
        listed = [{"name": unknown, "partition_indexes": [0]}]
        await _forward(run, client, "ListPartitionReassignments", 0, topics=listed)
        await _forward(run, client, "DescribeQuorum", 2, topics=[quorum])
        update = {"feature": "no.such.feature", "max_version_level": 1, "upgrade_type": 1}
        await _forward(run, client, "UpdateFeatures", 1, feature_updates=[update])
        await _forward(run, client, "UnregisterBroker", 0, broker_id=99)
        await _forward(run, client, "AllocateProducerIds", 0, broker_id=99, broker_epoch=1)
        voter = {"cluster_id": "another", "voter_id": 9, "voter_directory_id": b"d" * 16}
        await _forward(run, client, "RemoveRaftVoter", 0, **voter)
        config = {"resource_type": 2, "resource_name": unknown, "configs": []}
        await _forward(run, client, "IncrementalAlterConfigs", 1, resources=[config])
        await _forward(run, client, "AlterConfigs", 2, resources=[config])


async def refused(run: Run) -> None:
    """Envelopes that cannot be opened, or whose content may not be sent on."""
    request = make_request("UnregisterBroker", 0, {"broker_id": 99})
    good = b"".join(encode_request(request, 0, _CORRELATION_ID, "a client"))[SIZE_BYTES:]
    metadata = make_request("Metadata", 12, {"topics": []})
    other = b"".join(encode_request(metadata, 12, _CORRELATION_ID, "a client"))[SIZE_BYTES:]
    fetch = make_request("Vote", 0, {})
    vote = b"".join(encode_request(fetch, 0, _CORRELATION_ID, "a client"))[SIZE_BYTES:]
    for at in (ACTIVE, STANDBY):
        client = await run.client(at=at)
        for note, changed in (
            ("good", {}),
            ("an address of 16 bytes", {"client_host_address": bytes(15) + b"\1"}),
            ("an address of 5 bytes", {"client_host_address": b"12345"}),
            ("no address", {"client_host_address": b""}),
            ("no principal", {"request_principal": b""}),
            ("a principal of another version", {"request_principal": b"\0\x09" + _ALICE[2:]}),
            ("a broken principal", {"request_principal": _ALICE[:4]}),
            ("not sent on", {"request_data": other}),
            ("never sent on", {"request_data": vote}),
            ("an unknown API", {"request_data": b"\x7f\0" + good[2:]}),
            ("an unknown version", {"request_data": good[:2] + b"\0\x63" + good[4:]}),
            ("cut", {"request_data": good[:-3]}),
            ("only a part of the header", {"request_data": good[:5]}),
            ("nothing", {"request_data": b""}),
        ):
            body: dict[str, Any] = {
                "request_data": good,
                "request_principal": _ALICE,
                "client_host_address": _HOST,
                **changed,
            }
            await client.send("Envelope", 0, note=note, show=_sealed, **body)
