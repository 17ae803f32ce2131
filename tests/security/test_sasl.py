"""SASL PLAIN and SCRAM, and the steps of a login (facts: security.md, sections 3 and 4)."""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.errors import KafkaError
from dohle.core.principal import Principal
from dohle.security.jaas import PLAIN_MODULE, jaas_text, parse_jaas
from dohle.security.login import MechanismTerms, Phase, SaslLogin, SaslTerms
from dohle.security.mechanism import SaslRefused, check_mechanism
from dohle.security.plain import PlainServer, plain_token
from dohle.security.scram import (
    ITERATIONS_MIN,
    ScramClient,
    ScramCredential,
    ScramMechanism,
    ScramServer,
)

_USERS = {"alice": "alice-secret", "bob": "bob-secret"}
both = pytest.mark.parametrize("mechanism", list(ScramMechanism))


# PLAIN


def test_who_knows_the_password_is_let_in() -> None:
    assert PlainServer(_USERS).respond(plain_token("alice", "alice-secret")).user == "alice"
    assert PlainServer(_USERS).respond(b"bob\0bob\0bob-secret").user == "bob"


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (b"\0alice\0wrong", "Invalid username or password"),
        (b"\0nobody\0alice-secret", "Invalid username or password"),
        (b"\0alice\0", "password not specified"),
        (b"\0\0alice-secret", "username not specified"),
        (b"alice\0alice-secret", "expected 3 tokens, got 2"),
        (b"\0alice\0alice-secret\0", "expected 3 tokens, got 4"),
        (bytes(500_000), "expected 3 tokens, got 4"),
        (b"\0\xff\0x", "not UTF-8"),
        # CVE-2017-12610 (section 8): nobody becomes somebody else.
        (b"bob\0alice\0alice-secret", "authorization id that is different from username"),
    ],
)
def test_plain_refuses_as_kafka_does(token: bytes, reason: str) -> None:
    """Section 4, PLAIN: "exactly 3 parts …; user, password not empty; authzid empty or = user"."""
    with pytest.raises(SaslRefused, match=reason) as caught:
        PlainServer(_USERS).respond(token)
    assert "secret" not in str(caught.value)


# SCRAM


def credential(
    mechanism: ScramMechanism, password: str, iterations: int = ITERATIONS_MIN
) -> ScramCredential:
    salt = b"salt of the earth"
    salted = mechanism.salted_password(password, salt, iterations)
    return ScramCredential.of(mechanism, salted, salt, iterations)


def server_of(mechanism: ScramMechanism, iterations: int = ITERATIONS_MIN) -> ScramServer:
    known = {user: credential(mechanism, password, iterations) for user, password in _USERS.items()}
    known["a,b=c"] = credential(mechanism, "x")
    return ScramServer(mechanism, known.get, random.Random(1), b"key")


def client_of(mechanism: ScramMechanism, user: str, password: str) -> ScramClient:
    return ScramClient(mechanism, user, password, random.Random(2))


def log_in(server: ScramServer, client: ScramClient) -> str | None:
    client.challenged(server.respond(client.first()).reply)
    step = server.respond(client.final())
    client.confirmed(step.reply)
    return step.user


@both
@pytest.mark.parametrize(("user", "password"), [*_USERS.items(), ("a,b=c", "x")])
def test_both_sides_know_each_other_by_the_password(
    mechanism: ScramMechanism, user: str, password: str
) -> None:
    assert log_in(server_of(mechanism), client_of(mechanism, user, password)) == user


def test_the_messages_are_those_of_the_standard() -> None:
    """The example of RFC 7677, section 3, computed from the server's side."""
    mechanism = ScramMechanism.SCRAM_SHA_256
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = mechanism.salted_password("pencil", salt, 4096)
    known = ScramCredential.of(mechanism, salted, salt, 4096)
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    message = (
        "n=user,r=rOprNGfwEbeRWgbNEkqO,"
        f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={nonce}"
    )
    signature = mechanism.hmac(known.stored_key, message)
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    client_key = bytes(a ^ b for a, b in zip(signature, proof, strict=True))
    assert mechanism.hash(client_key) == known.stored_key
    server_signature = base64.b64encode(mechanism.hmac(known.server_key, message))
    assert server_signature == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@both
def test_a_wrong_password_and_an_unknown_user_fail_at_the_same_step(
    mechanism: ScramMechanism,
) -> None:
    """Section 4, SCRAM: "dohle: answer a made-up server-first … and fail at the end"."""
    for user, password in (("alice", "wrong"), ("nobody", "x")):
        server, client = server_of(mechanism), client_of(mechanism, user, password)
        client.challenged(server.respond(client.first()).reply)
        with pytest.raises(SaslRefused) as caught:
            server.respond(client.final())
        assert str(caught.value) == ""
    first = client_of(mechanism, "nobody", "x").first()
    salts = {server_of(mechanism).respond(first).reply.split(b",")[1] for _ in range(2)}
    assert len(salts) == 1


def test_a_credential_of_few_iterations_lets_nobody_in() -> None:
    mechanism = ScramMechanism.SCRAM_SHA_256
    server, client = server_of(mechanism, 1000), client_of(mechanism, "alice", "alice-secret")
    client.challenged(server.respond(client.first()).reply)
    with pytest.raises(SaslRefused):
        server.respond(client.final())


@pytest.mark.parametrize(
    "first",
    [
        b"y,,n=alice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,,n=al=2Xice,r=abc",
        b"n,,n=alice=,r=abc",
        b"n,,n===2C3D,r=abc",
        "n,,n=ålice,r=abc".encode(),
        b"n,,n=alice,r=",
        b"n,,n=alice",
        b"n,a=bob,n=alice,r=abc",
        b"",
        b"\xff",
    ],
)
def test_first_messages_that_kafka_refuses_are_refused(first: bytes) -> None:
    """Section 4, SCRAM, client-first; CVE-2017-12610 of section 8."""
    with pytest.raises(SaslRefused):
        server_of(ScramMechanism.SCRAM_SHA_256).respond(first)


@pytest.mark.parametrize(
    "token",
    [
        b"n,,n=" + b"=2C" * 3000 + b",r=abc",
        b"n,,n=alice,r=abc" + b",a=" * 3000,
        b"n,,n=alice,r=" + b"x" * 9000,
    ],
    ids=["name", "extensions", "nonce"],
)
def test_messages_that_are_far_too_long_are_refused_unread(token: bytes) -> None:
    """Section 8, model: "unauthenticated ones must cost next to nothing"."""

    def find(user: str) -> ScramCredential | None:
        raise AssertionError(f"{user} was looked for")

    server = ScramServer(ScramMechanism.SCRAM_SHA_256, find, random.Random(1), b"key")
    with pytest.raises(SaslRefused):
        server.respond(token)


def test_a_proof_for_another_nonce_is_refused() -> None:
    """Section 8: CVE-2024-56128, and a final message that is sent again elsewhere."""
    mechanism = ScramMechanism.SCRAM_SHA_256
    client = client_of(mechanism, "alice", "alice-secret")
    server = server_of(mechanism)
    client.challenged(server.respond(client.first()).reply)
    final = client.final()
    other = ScramServer(
        mechanism, {"alice": credential(mechanism, "alice-secret")}.get, random.Random(9), b""
    )
    other.respond(client.first())
    with pytest.raises(SaslRefused):
        other.respond(final)
    assert server.respond(final).user == "alice"


@pytest.mark.parametrize(
    "answer", [b"r=other,s=YQ==,i=4096", b"", b"r=%s,s=YQ==,i=999999999", b"r=%sx,s=YQ==,i=1"]
)
def test_a_client_does_not_trust_any_server(answer: bytes) -> None:
    """Section 8: "SCRAM iterations from the server capped (refuse > 1 M)"."""
    client = client_of(ScramMechanism.SCRAM_SHA_256, "alice", "x")
    nonce = client.first().rpartition(b"r=")[2]
    with pytest.raises(SaslRefused):
        client.challenged(answer.replace(b"%s", nonce))


def test_a_server_that_does_not_know_the_user_is_found_out() -> None:
    mechanism = ScramMechanism.SCRAM_SHA_512
    client = client_of(mechanism, "alice", "alice-secret")
    client.challenged(server_of(mechanism).respond(client.first()).reply)
    client.final()
    with pytest.raises(SaslRefused, match="not proven"):
        client.confirmed(b"v=AAAA")


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=3))
def test_no_nonsense_lets_anybody_in(tokens: list[bytes]) -> None:
    for server in (PlainServer(_USERS), server_of(ScramMechanism.SCRAM_SHA_256)):
        try:
            for token in tokens:
                assert server.respond(token).user is None
        except SaslRefused:
            pass


# Logging in


def terms(session_ms: int = 0, users: Mapping[str, str] = _USERS) -> SaslTerms:
    begin = {"PLAIN": lambda: PlainServer(users), "OTHER": lambda: PlainServer(users)}
    mechanisms = {name: MechanismTerms(each, session_ms) for name, each in begin.items()}
    return SaslTerms(mechanisms, failure_delay_ms=100, receive_bytes_max=1000)


_ALICE = plain_token("alice", "alice-secret")


def test_a_login_ends_with_a_principal_and_no_session() -> None:
    """Section 3, "Session lifetime": "none → no expiry, 0 is sent"."""
    login = SaslLogin(terms)
    assert login.handshake("PLAIN", 1, 5.0)
    answered = login.token(_ALICE, 5.0)
    assert (answered.session_ms, answered.failure) == (0, None)
    assert login.phase is Phase.OPEN
    assert login.principal == Principal("User", "alice")
    assert not login.may_begin(100.0)


def test_a_mechanism_that_is_not_enabled_ends_the_login() -> None:
    """Section 3, rule 3."""
    login = SaslLogin(terms)
    assert not login.handshake("GSSAPI", 1, 0.0)
    assert login.phase is Phase.FAILED


def test_a_session_is_renewed_by_the_same_user_and_mechanism() -> None:
    """Section 3, "Re-auth": once a second, same mechanism, same principal."""
    login = SaslLogin(lambda: terms(10_000))
    login.handshake("PLAIN", 1, 0.0)
    assert login.token(_ALICE, 0.0).session_ms == 10_000
    assert login.expires_s == 10.0
    assert login.may_begin(0.0)
    login.handshake("PLAIN", 1, 8.0)
    assert login.token(_ALICE, 8.0).session_ms == 10_000
    assert login.expires_s == 18.0
    assert not login.may_begin(8.5)
    assert login.may_begin(9.0)


@pytest.mark.parametrize(
    ("mechanism", "token", "reason"),
    [
        ("OTHER", _ALICE, "is not supported for re-authentication of mechanism 'PLAIN'"),
        (
            "PLAIN",
            plain_token("bob", "bob-secret"),
            "Cannot change principals during re-authentication from User:alice: User:bob",
        ),
    ],
)
def test_nobody_else_takes_over_a_session(mechanism: str, token: bytes, reason: str) -> None:
    login = SaslLogin(lambda: terms(10_000))
    login.handshake("PLAIN", 1, 0.0)
    login.token(_ALICE, 0.0)
    assert login.handshake(mechanism, 1, 2.0)
    assert reason in str(login.token(token, 2.0).failure)
    assert login.phase is Phase.FAILED


def test_a_session_is_not_renewed_by_a_password_that_is_not_good_any_more() -> None:
    """Section 3, "Session lifetime": a login is good for that long, and no longer."""
    now = terms(10_000)
    login = SaslLogin(lambda: now)
    login.handshake("PLAIN", 1, 0.0)
    login.token(_ALICE, 0.0)
    now = terms(10_000, {"bob": "bob-secret"})
    assert login.handshake("PLAIN", 1, 2.0)
    assert "Invalid username or password" in str(login.token(_ALICE, 2.0).failure)


# JAAS


def test_a_configuration_has_users_and_an_own_login() -> None:
    text = (
        f'{PLAIN_MODULE} required\n username="admin" password="a\\"b;c"\n user_alice=\'x y\' '
        "user_bob=z ;"
    )
    jaas = parse_jaas(text, "here")
    assert jaas.users == {"alice": "x y", "bob": "z"}
    assert jaas.own == ("admin", 'a"b;c')
    assert "x y" not in repr(jaas)


@given(st.text(min_size=1), st.text(min_size=1))
def test_what_is_written_is_read(user: str, password: str) -> None:
    assert parse_jaas(jaas_text("PLAIN", user, password), "here").own == (user, password)


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"{PLAIN_MODULE} required",
        f"{PLAIN_MODULE} sometimes a=b;",
        f"{PLAIN_MODULE} required a=very-secret b;",
        f"{PLAIN_MODULE} required a=b; {PLAIN_MODULE} required;",
        "com.sun.security.auth.module.JndiLoginModule required password=very-secret;",
        f'{PLAIN_MODULE} required password="very-secret;',
    ],
)
def test_what_is_no_configuration_is_refused_without_showing_it(text: str) -> None:
    """Section 8: CVE-2023-25194: no class name is ever looked up."""
    with pytest.raises(KafkaError) as caught:
        parse_jaas(text, "here")
    assert "very-secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["GSSAPI", "oauthbearer", "scram-sha-256", "EXTERNAL"])
def test_what_is_not_served_is_refused_with_a_sentence(name: str) -> None:
    with pytest.raises(KafkaError, match="choose from PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"):
        check_mechanism(name)
