"""A listener with TLS, and our own client (facts: security.md, section 2)."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import warnings
from collections.abc import Iterator

import pytest

from dohle.core.errors import ErrorCode, KafkaError
from dohle.testing.broker import Broker
from tests.security.authority import Authority, trust_store
from tests.server.security.secured import (
    cluster_of,
    peers_of,
    tls_client,
    tls_listener,
    write_and_read,
)


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[Broker]:
    properties = tls_listener(authority.issue(), authority, **{"ssl.client.auth": "requested"})
    with Broker(properties) as running:
        yield running


def test_records_of_any_size_come_back_as_they_went(broker: Broker, authority: Authority) -> None:
    values = [os.urandom(size) for size in (1, 100, 16_384, 16_385, 400_000, 900_000)]
    found = asyncio.run(write_and_read(broker.bootstrap, tls_client(authority), "sizes", values))
    assert found == values


def test_a_client_without_a_certificate_is_anonymous(broker: Broker, authority: Authority) -> None:
    """Section 2: "requested: no certificate → User:ANONYMOUS"."""

    async def ask() -> None:
        async with cluster_of(broker.bootstrap, tls_client(authority)) as cluster:
            await cluster.refresh(())
            assert "User:ANONYMOUS" in peers_of(broker)

    asyncio.run(ask())


def test_a_client_is_whom_its_certificate_names(broker: Broker, authority: Authority) -> None:
    """Section 2, Principal: "`User:` + X500Principal name in RFC 2253 form"."""

    async def ask() -> None:
        mine = tls_client(authority, authority.issue("alice"))
        async with cluster_of(broker.bootstrap, mine) as cluster:
            await cluster.refresh(())
            assert "User:CN=alice" in peers_of(broker)

    asyncio.run(ask())


def refused(broker: Broker, properties: dict[str, str]) -> KafkaError:
    async def ask() -> None:
        async with cluster_of(broker.bootstrap, properties) as cluster:
            await cluster.refresh(())

    with pytest.raises(KafkaError) as caught:
        asyncio.run(ask())
    return caught.value


def test_a_broker_that_nobody_trusted_has_signed_is_refused(
    broker: Broker, stranger: Authority
) -> None:
    error = refused(broker, tls_client(stranger))
    assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "the certificate of 127.0.0.1" in str(error)


def test_a_client_whose_certificate_has_expired_is_refused(
    broker: Broker, authority: Authority
) -> None:
    """Section 2: "a client learns of a refused certificate only after it believes to be …"."""
    error = refused(broker, tls_client(authority, authority.issue("late", days=-1)))
    assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "certificate expired" in str(error)


def test_a_client_of_another_authority_is_refused(
    broker: Broker, authority: Authority, stranger: Authority
) -> None:
    error = refused(broker, tls_client(authority, stranger.issue("mallory")))
    assert "unknown ca" in str(error)


def test_a_client_without_tls_is_told_that_there_may_be_tls(broker: Broker) -> None:
    """Section 2: "its first bytes are no TLS record → close"."""
    error = refused(broker, {})
    assert "closed the connection when asked for its versions" in str(error)


def test_the_host_is_checked_unless_that_is_switched_off(
    authority: Authority,
) -> None:
    """Section 2: "`ssl.endpoint.identification.algorithm` https … empty = no host check"."""
    elsewhere = authority.issue(hosts=("elsewhere.example",))
    with Broker(tls_listener(elsewhere, authority)) as broker:
        port = broker.bootstrap.rpartition(":")[2]
        there = f"localhost:{port}"

        async def ask(properties: dict[str, str]) -> None:
            async with cluster_of(there, properties) as cluster:
                await cluster.any_connection()

        with pytest.raises(KafkaError, match="Hostname mismatch"):
            asyncio.run(ask(tls_client(authority)))
        unchecked = {"ssl.endpoint.identification.algorithm": ""}
        asyncio.run(ask({**tls_client(authority), **unchecked}))


@pytest.fixture(scope="module")
def strict(authority: Authority) -> Iterator[Broker]:
    more = {
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*?),OU=ops.*$/$1/L,RULE:^CN=([^,]+)$/$1/",
        "connections.login.timeout.ms": "500",
    }
    with Broker(tls_listener(authority.issue(), authority, **more)) as running:
        yield running


def test_where_a_certificate_is_required_nobody_comes_without(
    strict: Broker, authority: Authority
) -> None:
    """Section 2: "required: a client without a valid certificate fails the TLS handshake"."""
    assert "certificate required" in str(refused(strict, tls_client(authority)))


def test_rules_make_the_user_of_a_name(strict: Broker, authority: Authority) -> None:
    """Section 2, Mapping rules."""

    async def ask() -> None:
        mine = tls_client(authority, authority.issue("alice"))
        async with cluster_of(strict.bootstrap, mine) as cluster:
            await cluster.refresh(())
            assert "User:alice" in peers_of(strict)

    asyncio.run(ask())


def test_who_never_finishes_the_handshake_is_turned_out(strict: Broker) -> None:
    """Section 1, connections.max.idle.ms: "dohle: own shorter one"."""
    host, _, port = strict.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as silent:
        # The beginning of a handshake: a record of 200 bytes, of which few come.
        silent.sendall(bytes.fromhex("16030100c8") + b"\x01")
        assert silent.recv(1000) == b""


def test_old_versions_of_tls_are_refused(broker: Broker, authority: Authority) -> None:
    """Section 2: "`ssl.enabled.protocols` TLSv1.2,TLSv1.3"."""
    host, _, port = broker.bootstrap.rpartition(":")
    for version, is_served in (
        (ssl.TLSVersion.TLSv1_1, False),
        (ssl.TLSVersion.TLSv1_2, True),
        (ssl.TLSVersion.TLSv1_3, True),
    ):
        context = ssl.create_default_context(cafile=authority.path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version = context.maximum_version = version
        context.set_ciphers("ALL:@SECLEVEL=0")
        with socket.create_connection((host, int(port)), timeout=20) as raw:
            if is_served:
                with context.wrap_socket(raw, server_hostname="127.0.0.1") as wrapped:
                    assert wrapped.version() == version.name.replace("_", ".")
            else:
                with pytest.raises(ssl.SSLError):
                    context.wrap_socket(raw, server_hostname="127.0.0.1")


def test_a_listener_with_tls_needs_a_certificate(authority: Authority) -> None:
    properties = {
        "listeners": "SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SSL",
        **trust_store(authority),
    }
    with pytest.raises(KafkaError, match=r"listener SSL: .* needs a certificate"):
        Broker(properties).start()


def test_many_requests_at_once_are_answered_in_order(broker: Broker, authority: Authority) -> None:
    """More arrives than there is room for in one go: what OpenSSL holds is not forgotten."""

    async def ask() -> None:
        async with cluster_of(broker.bootstrap, tls_client(authority)) as cluster:
            connection = await cluster.any_connection()
            asked = [connection.ask_versions() for _ in range(90)]
            answers = await asyncio.gather(*asked)
            assert {len(answer.api_keys) for answer in answers} == {len(answers[0].api_keys)}

    asyncio.run(ask())
