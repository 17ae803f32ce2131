"""Nodes that know each other by certificates and passwords (facts: security.md, section 1)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dohle.cli.free_ports import free_ports
from dohle.cli.main import main
from dohle.client import Admin, Cluster, NewTopic, Producer
from dohle.core.seams import system_rng
from dohle.core.uuid import random_uuid, uuid_to_text
from dohle.security.jaas import PLAIN_MODULE, SCRAM_MODULE
from dohle.testing.broker import Broker
from tests.security.authority import Authority, key_store, trust_store
from tests.server.security.secured import cluster_of, peers_of, sasl_client

_PLAIN = (
    f'{PLAIN_MODULE} required username="node" password="node-secret" user_node="node-secret" '
    'user_alice="alice-secret";'
)
_SCRAM = f'{SCRAM_MODULE} required username="broker" password="broker-secret";'


def properties(
    folder: Path, node: int, controller_port: int, authority: Authority
) -> dict[str, str]:
    """Return the properties of two nodes: 1 is both, 2 is a broker."""
    roles, listeners = "broker", "BROKER://127.0.0.1:0"
    if node == 1:
        roles, listeners = "broker,controller", f"{listeners},CTL://127.0.0.1:{controller_port}"
    return {
        "node.id": str(node),
        "process.roles": roles,
        "listeners": listeners,
        "controller.listener.names": "CTL",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "inter.broker.listener.name": "BROKER",
        "log.dirs": str(folder / str(node)),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "plain.sasl.jaas.config": _PLAIN,
        "scram-sha-512.sasl.jaas.config": _SCRAM,
        **key_store(authority.issue()),
        **trust_store(authority),
    }


def format_node(folder: Path, node: int, cluster_id: str, *more: str) -> None:
    data = str(folder / str(node))
    arguments = ["--data", data, "--node-id", str(node), "--cluster-id", cluster_id]
    assert main(["storage", "format", *arguments, *more]) == 0


async def replicate(cluster: Cluster) -> None:
    topic = NewTopic("replicated", partitions=1, replication_factor=2)
    (await Admin(cluster).create_topics([topic])).one()
    async with Producer(cluster) as producer:
        await producer.send("replicated", b"x")
    found = await Admin(cluster).describe_topics(["replicated"])
    (partition,) = found.one().partitions.values()
    assert sorted(partition.isr) == [1, 2]


def test_no_node_copies_from_or_asks_another_that_does_not_know_it(
    tmp_path: Path, authority: Authority
) -> None:
    """Section 4, SCRAM, "Bootstrap": "That is how the first user (inter-broker by SCRAM) comes"."""
    (port,) = free_ports(1)
    cluster_id = uuid_to_text(random_uuid(system_rng()))
    scram = "SCRAM-SHA-512=[name=broker,password=broker-secret]"
    format_node(tmp_path, 1, cluster_id, "--add-scram", scram)
    format_node(tmp_path, 2, cluster_id)
    protocols = {"listener.security.protocol.map": "BROKER:SASL_SSL,CTL:SASL_SSL"}
    mine = {**sasl_client("PLAIN", "alice", protocol="SASL_SSL"), **trust_store(authority)}

    def node(number: int) -> Broker:
        own = properties(tmp_path, number, port, authority)
        return Broker({**own, **protocols}, data=own["log.dirs"])

    async def use(bootstrap: str) -> None:
        async with asyncio.timeout(60), cluster_of(bootstrap, mine) as cluster:
            await replicate(cluster)

    with node(1) as first, node(2) as second:
        asyncio.run(use(f"{first.bootstrap},{second.bootstrap}"))
        everybody = peers_of(first) | peers_of(second)
        assert {"User:node", "User:broker"} <= everybody
        assert "User:ANONYMOUS" not in everybody


def test_nodes_know_each_other_by_certificates_alone(tmp_path: Path, authority: Authority) -> None:
    (port,) = free_ports(1)
    cluster_id = uuid_to_text(random_uuid(system_rng()))
    for number in (1, 2):
        format_node(tmp_path, number, cluster_id)
    protocols = {
        "listener.security.protocol.map": "BROKER:SSL,CTL:SSL",
        "ssl.client.auth": "required",
    }
    mine = {
        "security.protocol": "SSL",
        **trust_store(authority),
        **key_store(authority.issue("alice")),
    }

    def node(number: int) -> Broker:
        own = properties(tmp_path, number, port, authority)
        return Broker({**own, **protocols}, data=own["log.dirs"])

    async def use(bootstrap: str) -> None:
        async with asyncio.timeout(60), cluster_of(bootstrap, mine) as cluster:
            await replicate(cluster)

    with node(1) as first, node(2) as second:
        asyncio.run(use(first.bootstrap))
        assert "User:CN=localhost" in peers_of(first) | peers_of(second)


def test_a_node_that_has_no_user_of_its_own_does_not_start(
    tmp_path: Path, authority: Authority
) -> None:
    from dohle.core.errors import KafkaError

    own = properties(tmp_path, 2, 1, authority)
    format_node(tmp_path, 2, uuid_to_text(random_uuid(system_rng())))
    own["listener.security.protocol.map"] = "BROKER:SASL_SSL,CTL:SASL_SSL"
    own["plain.sasl.jaas.config"] = f'{PLAIN_MODULE} required user_alice="alice-secret";'
    with pytest.raises(KafkaError, match=r"sasl.mechanism.controller.protocol=PLAIN: .* username"):
        Broker(own, data=own["log.dirs"]).start()
