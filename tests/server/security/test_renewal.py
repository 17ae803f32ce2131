"""Certificates and users renewed while the broker runs (facts: security.md, section 2, Reload)."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from pathlib import Path

import pytest

from dohle.client import Admin, AlterOp, ConfigChange, ConfigResource, ResourceType
from dohle.core.errors import ErrorCode, KafkaError
from dohle.testing.broker import Broker
from tests.security.authority import Authority, Issued
from tests.server.security.secured import cluster_of, tls_client, tls_listener

_BROKER = ConfigResource(ResourceType.BROKER, "1")
_PREFIX = "listener.name.ssl.ssl.keystore."


def shown(broker: Broker, authority: Authority) -> bytes:
    """Return the certificate that a client is shown now."""
    host, _, port = broker.bootstrap.rpartition(":")
    context = ssl.create_default_context(cafile=authority.path)
    with (
        socket.create_connection((host, int(port)), timeout=20) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1") as wrapped,
    ):
        found = wrapped.getpeercert(binary_form=True)
        assert found is not None
        return found


def alter(broker: Broker, authority: Authority, texts: dict[str, str]) -> None:
    changes = [ConfigChange(name, AlterOp.SET, text) for name, text in texts.items()]

    async def ask() -> None:
        async with cluster_of(broker.bootstrap, tls_client(authority)) as cluster:
            (await Admin(cluster).incremental_alter_configs({_BROKER: changes})).ok()

    asyncio.run(ask())


def at(issued: Issued) -> dict[str, str]:
    return {f"{_PREFIX}type": "PEM", f"{_PREFIX}location": issued.path}


def test_a_new_file_is_shown_to_new_clients_when_a_config_is_altered(
    authority: Authority,
) -> None:
    """Section 2, Reload: "Any config alteration of that broker makes it look at the mtime"."""
    first, second, third = authority.issue(), authority.issue(), authority.issue()
    with Broker(tls_listener(first, authority)) as broker:
        assert shown(broker, authority) == first.der
        alter(broker, authority, at(second))
        assert shown(broker, authority) == second.der
        Path(second.path).write_text(third.key + third.chain)
        os.utime(second.path, (1, 1))
        alter(broker, authority, {"log.retention.ms": "1000000"})
        assert shown(broker, authority) == third.der


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda it: it.issue("somebody.else"), "DistinguishedName does not match"),
        (lambda it: it.issue(hosts=("elsewhere.example",)), "SubjectAltNames do not match"),
    ],
)
def test_somebody_elses_certificate_is_refused_and_the_old_one_stays(
    authority: Authority, make: object, reason: str
) -> None:
    """Section 2, Reload: "same entries (…DN; SANs a superset)…; else 42 and the old stays"."""
    first = authority.issue()
    assert callable(make)
    other: Issued = make(authority)
    with Broker(tls_listener(first, authority)) as broker:
        with pytest.raises(KafkaError, match=reason) as caught:
            alter(broker, authority, at(other))
        assert caught.value.code is ErrorCode.INVALID_REQUEST
        assert shown(broker, authority) == first.der


def test_a_file_that_cannot_be_read_is_refused(authority: Authority) -> None:
    nowhere = {f"{_PREFIX}type": "PEM", f"{_PREFIX}location": "/nowhere/at/all"}
    with (
        Broker(tls_listener(authority.issue(), authority)) as broker,
        pytest.raises(KafkaError, match="No such file"),
    ):
        alter(broker, authority, nowhere)
