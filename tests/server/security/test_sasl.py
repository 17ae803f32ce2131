"""Listeners with SASL (facts: security.md, section 3; of each test, the rule of that number)."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dohle.client import Admin
from dohle.core.errors import ErrorCode, KafkaError
from dohle.protocol.framing import encode_request
from dohle.protocol.messages.api_versions import ApiVersionsRequest
from dohle.protocol.messages.metadata import MetadataRequest
from dohle.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
)
from dohle.security.plain import plain_token
from dohle.security.scram import ScramMechanism
from dohle.testing.broker import Broker
from tests.security.authority import Authority, key_store, trust_store
from tests.server.security.raw import Raw
from tests.server.security.secured import (
    cluster_of,
    peers_of,
    sasl_client,
    sasl_listener,
    write_and_read,
)

_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def add_users(broker: Broker) -> None:
    """Give alice passwords for both kinds of SCRAM."""

    async def add() -> None:
        async with cluster_of(broker.bootstrap, sasl_client("PLAIN", "admin")) as cluster:
            for mechanism in ScramMechanism:
                await Admin(cluster).set_password("alice", mechanism, "alice-secret")

    asyncio.run(add())


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(sasl_listener("SASL_PLAINTEXT")) as running:
        add_users(running)
        yield running


@pytest.mark.parametrize("mechanism", _MECHANISMS)
def test_who_logs_in_writes_and_reads(broker: Broker, mechanism: str) -> None:
    properties = sasl_client(mechanism, "alice")
    found = asyncio.run(write_and_read(broker.bootstrap, properties, f"by-{mechanism}", [b"x"]))
    assert found == [b"x"]


def test_the_principal_is_who_has_logged_in(broker: Broker) -> None:
    """Rule 9."""

    async def ask() -> None:
        async with cluster_of(broker.bootstrap, sasl_client("SCRAM-SHA-512", "alice")) as cluster:
            await cluster.refresh(())
            assert "User:alice" in peers_of(broker)

    asyncio.run(ask())


@pytest.mark.parametrize("mechanism", _MECHANISMS)
@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_a_wrong_password_and_an_unknown_user_are_told_the_same(
    broker: Broker, mechanism: str, user: str
) -> None:
    """Rule 7."""

    async def ask() -> None:
        async with cluster_of(broker.bootstrap, sasl_client(mechanism, user, "wrong")) as cluster:
            await cluster.refresh(())

    with pytest.raises(KafkaError) as caught:
        asyncio.run(ask())
    assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    told = "Authentication failed: Invalid username or password"
    if mechanism != "PLAIN":
        told = (
            "Authentication failed during authentication due to invalid credentials with SASL "
            f"mechanism {mechanism}"
        )
    assert told in str(caught.value)


def test_a_password_that_is_taken_away_lets_nobody_in(broker: Broker) -> None:
    async def ask() -> None:
        admin_properties = sasl_client("PLAIN", "admin")
        async with cluster_of(broker.bootstrap, admin_properties) as cluster:
            admin = Admin(cluster)
            await admin.set_password("carol", ScramMechanism.SCRAM_SHA_256, "carol-secret")
            assert "carol" in (await admin.describe_users()).done
        carol = sasl_client("SCRAM-SHA-256", "carol")
        async with cluster_of(broker.bootstrap, carol) as cluster:
            await cluster.refresh(())
        async with cluster_of(broker.bootstrap, admin_properties) as cluster:
            await Admin(cluster).remove_password("carol", ScramMechanism.SCRAM_SHA_256)
        async with cluster_of(broker.bootstrap, carol) as cluster:
            await cluster.refresh(())

    with pytest.raises(KafkaError, match="invalid credentials"):
        asyncio.run(ask())


# Frame by frame


_ALICE = plain_token("alice", "alice-secret")


def ask_metadata(raw: Raw) -> None:
    raw.send(MetadataRequest(topics=None), 9)


@pytest.mark.parametrize(
    "send",
    [
        ask_metadata,
        lambda raw: raw.send(SaslAuthenticateRequest(auth_bytes=_ALICE), 2),
        lambda raw: raw.socket.sendall(b"\x00\x00\x00\x02\x60\x01"),
        lambda raw: raw.socket.sendall(struct.pack(">i", 600_000) + bytes(100)),
    ],
    ids=["metadata", "token", "nonsense", "large"],
)
def test_before_the_handshake_nothing_else_is_answered(
    broker: Broker, send: Callable[[Raw], None]
) -> None:
    """Rule 1; and section 1, sasl.server.max.receive.size: "close without answer"."""
    with Raw(broker) as raw:
        send(raw)
        assert raw.receive() is None


def test_versions_are_told_once(broker: Broker) -> None:
    """Rule 2: one that is refused does not count."""
    with Raw(broker) as raw:
        # A later version has the header of the latest.
        unknown = bytearray(b"".join(encode_request(ApiVersionsRequest(), 4, 7, "raw")))
        unknown[6:8] = b"\0\x7f"
        raw.socket.sendall(unknown)
        refused = raw.receive()
        assert refused is not None
        assert refused[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
        assert raw.versions() == ErrorCode.NONE
        assert raw.versions() is None


def test_a_mechanism_that_is_not_enabled_is_refused_with_those_that_are(broker: Broker) -> None:
    """Rule 3."""
    with Raw(broker) as raw:
        answer = raw.handshake("GSSAPI")
        assert answer is not None
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert set(answer.mechanisms) == set(_MECHANISMS)
        assert raw.receive() is None


def test_another_api_between_handshake_and_token_ends_the_connection(broker: Broker) -> None:
    """Rule 4; Kafka answers with 34 first, here it is closed at once."""
    with Raw(broker) as raw:
        assert raw.handshake() is not None
        ask_metadata(raw)
        assert raw.receive() is None


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_login_is_answered_without_bytes_and_without_an_end(broker: Broker, version: int) -> None:
    """Rules 5 and 8."""
    with Raw(broker) as raw:
        assert raw.handshake() is not None
        answer = raw.authenticate(_ALICE, version)
        assert answer is not None
        assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (0, b"", 0)
        again = raw.handshake()
        assert again is not None
        assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert raw.versions() == ErrorCode.NONE


def test_old_clients_send_bare_tokens(broker: Broker) -> None:
    """Rules 3 and 6: after a handshake of version 0, and no answer to who fails."""
    with Raw(broker) as raw:
        assert raw.handshake(version=0) is not None
        raw.send_bare(_ALICE)
        assert raw.receive() == b""
        assert raw.versions() == ErrorCode.NONE
    with Raw(broker) as raw:
        assert raw.handshake(version=0) is not None
        raw.send_bare(plain_token("alice", "wrong"))
        assert raw.receive() is None


def test_who_fails_is_told_and_cut_off(broker: Broker) -> None:
    """Rule 6."""
    with Raw(broker) as raw:
        assert raw.handshake() is not None
        answer = raw.authenticate(plain_token("alice", "wrong"))
        assert answer is not None
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert raw.receive() is None


def test_a_listener_without_sasl_refuses_logins_and_stays() -> None:
    """Rule 8."""
    with Broker() as plain, Raw(plain) as raw:
        answer = raw.handshake()
        assert answer is not None
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        token = raw.authenticate(_ALICE)
        assert token is not None
        assert token.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert raw.versions() == ErrorCode.NONE


@given(st.lists(st.binary(max_size=300), max_size=4))
@example([b"\0\x12\0\0\0\0\0\1\xff\xff", b"\0\x03\0\x09" + b"\0" * 20])
@settings(max_examples=100, deadline=None)
def test_nobody_gets_in_by_nonsense(broker: Broker, frames: list[bytes]) -> None:
    """Section 8: "random frames before login (Hypothesis) must end in close"."""
    with Raw(broker) as raw:
        for frame in frames:
            with suppress(OSError):
                raw.send_bare(frame)
        with suppress(OSError):
            raw.socket.shutdown(socket.SHUT_WR)
        while raw.receive() is not None:
            pass
    assert peers_of(broker) <= {"User:ANONYMOUS", "User:alice", "User:admin"}


# Sessions


def test_a_session_that_has_ended_serves_no_request_but_a_login() -> None:
    """Section 3, "Session lifetime": "close silently, count"."""
    more = {"connections.max.reauth.ms": "1500", "plain.connections.max.reauth.ms": "1"}
    with Broker(sasl_listener("SASL_PLAINTEXT", **more)) as broker:
        with Raw(broker) as raw:
            assert raw.handshake() is not None
            answer = raw.authenticate(_ALICE)
            assert answer is not None
            assert answer.session_lifetime_ms == 1
            # Later than that on any machine: the broker has read the clock twice since.
            again = raw.handshake()
            assert again is not None
            assert again.error_code == 0
            answer = raw.authenticate(_ALICE)
            assert answer is not None
            assert answer.error_code == 0
            while raw.versions() is not None:
                pass
        (listener,) = broker.node.listeners
        assert listener.gate is not None
        assert listener.gate.expired_count == 1


def test_our_client_logs_in_again_before_its_session_ends() -> None:
    more = {"connections.max.reauth.ms": "1200"}
    with Broker(sasl_listener("SASL_PLAINTEXT", **more)) as broker:

        async def ask() -> int:
            async with cluster_of(broker.bootstrap, sasl_client("PLAIN", "alice")) as cluster:
                connection = await cluster.any_connection()
                end = asyncio.get_running_loop().time() + 3
                count = 0
                while asyncio.get_running_loop().time() < end:
                    await connection.ask_versions()
                    count += 1
                return count

        assert asyncio.run(ask()) > 0
        (listener,) = broker.node.listeners
        assert listener.gate is not None
        assert listener.gate.expired_count == 0
        assert listener.made_count == 1


# TLS with SASL, and what is refused at the start


def test_both_together(authority: Authority) -> None:
    """Section 1: ssl.client.auth without the prefix of the listener is not for SASL_SSL."""
    properties = {
        **sasl_listener("SASL_SSL", **{"ssl.client.auth": "required"}),
        **key_store(authority.issue()),
        **trust_store(authority),
    }
    mine = {**sasl_client("PLAIN", "alice", protocol="SASL_SSL"), **trust_store(authority)}
    with Broker(properties) as broker:
        found = asyncio.run(write_and_read(broker.bootstrap, mine, "both", [b"x" * 100_000]))
        assert found == [b"x" * 100_000]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, r"listener SASL_PLAINTEXT: Kerberos \(GSSAPI\)"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, "sasl.oauthbearer.jwks.endpoint.url"),
        ({"plain.sasl.jaas.config": "x required;"}, "none of"),
    ],
)
def test_what_cannot_be_served_is_refused_at_the_start(more: dict[str, str], reason: str) -> None:
    with pytest.raises(KafkaError, match=reason):
        Broker({**sasl_listener("SASL_PLAINTEXT"), **more}).start()


def test_who_never_logs_in_is_turned_out() -> None:
    """Section 1, connections.max.idle.ms: "dohle: own shorter one"."""
    more = {"connections.login.timeout.ms": "300"}
    with Broker(sasl_listener("SASL_PLAINTEXT", **more)) as broker, Raw(broker) as raw:
        assert raw.versions() == ErrorCode.NONE
        assert raw.receive() is None


def test_passwords_are_in_no_log_and_no_description(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """Section 8: "sensitive values in logs/answers"."""
    caplog.set_level("DEBUG")

    async def ask() -> str:
        async with cluster_of(broker.bootstrap, sasl_client("PLAIN", "alice")) as cluster:
            from dohle.client import ConfigResource, ResourceType

            resource = ConfigResource(ResourceType.BROKER, "1")
            return repr(await Admin(cluster).describe_configs([resource]))

    described = asyncio.run(ask())
    assert "plain.sasl.jaas.config" in described
    for text in (described, caplog.text):
        assert "alice-secret" not in text
        assert "admin-secret" not in text
