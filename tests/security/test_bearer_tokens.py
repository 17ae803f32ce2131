"""Tokens of OAUTHBEARER (facts: security.md, section 4; section 8: CVE-2026-33557, -110985)."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from dohle.core.errors import KafkaError
from dohle.security.bearer_tokens import BearerToken, Jwks, TokenRefused, TokenTerms, UnknownKey
from dohle.security.mechanism import SaslRefused
from dohle.security.oauthbearer import OAuthServer, oauth_message
from tests.security.tokens import AUDIENCE, ISSUER, Issuer, jwks_of

NOW_S = 1_700_000_000
TERMS = TokenTerms(issuer=ISSUER, audience=("others", AUDIENCE))
OURS, THEIRS = Issuer(), Issuer()
KEYS = Jwks.parse(jwks_of(OURS), "here")


def unsigned() -> str:
    claims = {"sub": "alice", "iat": NOW_S, "exp": NOW_S + 60, "iss": ISSUER, "aud": AUDIENCE}
    return jwt.encode(claims, "", "none")


def signed_with_the_public_key() -> str:
    """The old trick: what everybody knows, as if it were a shared secret."""
    public = OURS.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    import hashlib
    import hmac

    claims = {"sub": "alice", "iat": NOW_S, "exp": NOW_S + 60, "iss": ISSUER, "aud": AUDIENCE}
    text = f"{part({'alg': 'HS256', 'kid': 'one'})}.{part(claims)}"
    made = hmac.digest(public, text.encode(), hashlib.sha256)
    return f"{text}.{base64.urlsafe_b64encode(made).decode().rstrip('=')}"


def test_a_token_tells_the_user_and_when_it_expires() -> None:
    token = OURS.sign(now_s=NOW_S, life_s=60)
    assert TERMS.read(token, KEYS, NOW_S * 1000) == BearerToken("alice", (NOW_S + 60) * 1000)


@pytest.mark.parametrize(
    "make",
    [
        unsigned,
        signed_with_the_public_key,
        lambda: THEIRS.sign(now_s=NOW_S),
        lambda: OURS.sign(now_s=NOW_S, iss="https://others.example.org"),
        lambda: OURS.sign(now_s=NOW_S, aud="somebody"),
        lambda: OURS.sign(now_s=NOW_S, aud=None),
        lambda: OURS.sign(now_s=NOW_S, iat=None),
        lambda: OURS.sign(now_s=NOW_S, exp=None),
        lambda: OURS.sign(now_s=NOW_S, exp=True),
        lambda: OURS.sign(now_s=NOW_S - 100, life_s=70),
        lambda: OURS.sign(now_s=NOW_S, nbf=NOW_S + 31),
        lambda: OURS.sign(now_s=NOW_S, life_s=-1),
        lambda: OURS.sign(now_s=NOW_S, sub=None),
        lambda: OURS.sign("  ", now_s=NOW_S),
        lambda: OURS.sign(now_s=NOW_S, scope=["a", "a"]),
        lambda: OURS.sign(now_s=NOW_S)[:-8] + "AAAAAAAA",
        lambda: "a.b",
        lambda: "....",
    ],
)
def test_a_token_that_does_not_count_is_refused(make: Callable[[], str]) -> None:
    with pytest.raises(TokenRefused):
        TERMS.read(make(), KEYS, NOW_S * 1000)


def test_clocks_may_differ_a_little() -> None:
    late = OURS.sign(now_s=NOW_S - 100, life_s=71)
    assert TERMS.read(late, KEYS, NOW_S * 1000).user == "alice"
    early = OURS.sign(now_s=NOW_S, nbf=NOW_S + 29)
    assert TERMS.read(early, KEYS, NOW_S * 1000).user == "alice"


def test_a_token_for_somebody_is_not_for_a_broker_that_is_nobody() -> None:
    with pytest.raises(TokenRefused):
        TokenTerms().read(OURS.sign(now_s=NOW_S), KEYS, NOW_S * 1000)
    assert TokenTerms().read(OURS.sign(now_s=NOW_S, aud=None), KEYS, NOW_S * 1000).user == "alice"


def test_another_claim_may_name_the_user() -> None:
    token = OURS.sign(now_s=NOW_S, sub=None, azp="service")
    terms = TokenTerms(audience=(AUDIENCE,), subject_claim="azp")
    assert terms.read(token, KEYS, NOW_S * 1000).user == "service"


def test_a_key_that_is_not_there_is_told_by_its_name() -> None:
    with pytest.raises(UnknownKey) as refused:
        TERMS.read(Issuer("two").sign(now_s=NOW_S), KEYS, NOW_S * 1000)
    assert refused.value.key_id == "two"


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"keys": []}', b'{"keys": [{"kty": "oct", "k": "AA"}]}']
)
def test_a_jwks_without_public_keys_is_refused(data: bytes) -> None:
    with pytest.raises(KafkaError, match="here"):
        Jwks.parse(data, "here")


# The exchange


def server() -> OAuthServer:
    return OAuthServer(lambda token: TERMS.read(token, KEYS, NOW_S * 1000), lambda: NOW_S * 1000)


def test_a_good_token_is_answered_with_nothing_and_its_life() -> None:
    step = server().respond(oauth_message(OURS.sign(now_s=NOW_S, life_s=60), {"cluster": "lkc"}))
    assert step == (b"", "alice", 60_000)


def test_a_bad_token_is_told_and_then_refused_with_the_same_words() -> None:
    one = server()
    told = one.respond(oauth_message(unsigned(), {}))
    assert told == (b'{"status":"invalid_token"}', None, None)
    with pytest.raises(SaslRefused, match="invalid_token"):
        one.respond(b"\x01")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"y,,\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01auth=Bearer x\x01",
        b"n,,\x01k1=v\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        b"n,,\x01auth=Bearer " + b"x" * 70_000 + b"\x01\x01",
    ],
)
def test_what_is_no_message_of_it_is_refused_without_a_word(message: bytes) -> None:
    with pytest.raises(SaslRefused, match=r"^$"):
        server().respond(message)


def test_nobody_logs_in_for_somebody_else() -> None:
    token = OURS.sign(now_s=NOW_S)
    with pytest.raises(SaslRefused, match="authorization id"):
        server().respond(f"n,a=bob,\x01auth=Bearer {token}\x01\x01".encode())
    step = server().respond(f"n,a=alice,\x01auth=bearer {token}\x01\x01".encode())
    assert step.user == "alice"
