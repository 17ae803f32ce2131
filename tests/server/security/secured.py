"""Brokers whose clients have to say who they are, and our own client to ask them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from dohle.client import Admin, ClientConfig, Cluster, Consumer, NewTopic, Producer
from dohle.client.consumer.starts import Beginning
from dohle.core.ids import TopicName, TopicPartition
from dohle.security.client import ClientSecurity
from dohle.security.jaas import PLAIN_MODULE, jaas_text
from dohle.testing.broker import Broker
from tests.security.authority import Authority, Issued, key_store, trust_store


def tls_listener(server: Issued, trusted: Authority, **more: str) -> dict[str, str]:
    """Return the properties of a broker with one listener, for TLS."""
    return {
        "listeners": "SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SSL",
        **key_store(server),
        **trust_store(trusted),
        **more,
    }


def tls_client(trusted: Authority, own: Issued | None = None, **more: str) -> dict[str, str]:
    """Return the properties of a client, by Kafka's names."""
    own_store = {} if own is None else key_store(own)
    return {"security.protocol": "SSL", **trust_store(trusted), **own_store, **more}


def cluster_of(bootstrap: str, properties: Mapping[str, str]) -> Cluster:
    security = ClientSecurity.from_properties(properties)
    config = ClientConfig(security=security, api_timeout_ms=20_000)
    return Cluster(bootstrap, config)


async def write_and_read(
    bootstrap: str, properties: Mapping[str, str], topic: str, values: list[bytes]
) -> list[bytes]:
    """Create a topic, write to it and return what is read back."""
    async with asyncio.timeout(30), cluster_of(bootstrap, properties) as cluster:
        (await Admin(cluster).create_topics([NewTopic(topic, partitions=1)])).one()
        async with Producer(cluster) as producer:
            for value in values:
                await producer.send(topic, value)
        async with Consumer(cluster) as consumer:
            await consumer.assign({TopicPartition(TopicName(topic), 0): Beginning()})
            found: list[bytes] = []
            while len(found) < len(values):
                records = await consumer.poll(timeout_ms=1000)
                found += [bytes(each.record.value or b"") for each in records]
        return found


def peers_of(broker: Broker) -> set[str]:
    """Return who is connected, as the broker sees them."""
    return {
        str(connection.principal)
        for listener in broker.node.listeners
        for connection in list(listener.connections)
    }


def sasl_listener(protocol: str, **more: str) -> dict[str, str]:
    """Return the properties of a broker with one listener, for SASL; PLAIN knows two users."""
    users = 'user_alice="alice-secret" user_admin="admin-secret"'
    return {
        "listeners": f"{protocol}://127.0.0.1:0",
        "security.inter.broker.protocol": protocol,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "plain.sasl.jaas.config": f"{PLAIN_MODULE} required {users};",
        **more,
    }


def sasl_client(
    mechanism: str, user: str, password: str | None = None, protocol: str = "SASL_PLAINTEXT"
) -> dict[str, str]:
    """Return the properties of a client, by Kafka's names."""
    return {
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas_text(mechanism, user, password or f"{user}-secret"),
    }
