"""Other people's clients that log in by SASL (facts: security.md, sections 3 and 4)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from dohle.client import Admin
from dohle.security.scram import ScramMechanism
from dohle.testing.broker import Broker
from tests.interop.quick_broker import fresh
from tests.interop.secured_clients import CLIENTS, TIDY, Client, NotLetIn, Security
from tests.security.authority import Authority, key_store, trust_store
from tests.security.tokens import AUDIENCE, Issuer, jwks_of
from tests.server.security.secured import cluster_of, sasl_client, sasl_listener

pytestmark = pytest.mark.slow
every_client = pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
# kafka-python is refused too, but leaves sockets open that fail the run at its end.
every_tidy_client = pytest.mark.parametrize("client", TIDY.values(), ids=TIDY)
every_mechanism = pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])


def add_users(broker: Broker, properties: dict[str, str]) -> None:
    async def add() -> None:
        async with cluster_of(broker.bootstrap, properties) as cluster:
            for mechanism in ScramMechanism:
                await Admin(cluster).set_password("alice", mechanism, "alice-secret")

    asyncio.run(add())


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(sasl_listener("SASL_PLAINTEXT")) as running:
        add_users(running, sasl_client("PLAIN", "admin"))
        yield running


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def encrypted(authority: Authority) -> Iterator[Broker]:
    stores = {**key_store(authority.issue()), **trust_store(authority)}
    with Broker({**sasl_listener("SASL_SSL"), **stores}) as running:
        mine = {**sasl_client("PLAIN", "admin", protocol="SASL_SSL"), **trust_store(authority)}
        add_users(running, mine)
        yield running


@every_client
@every_mechanism
def test_a_client_logs_in(broker: Broker, client: Client, mechanism: str) -> None:
    security = Security("SASL_PLAINTEXT", None, None, mechanism, "alice", "alice-secret")
    assert client(broker.bootstrap, security, fresh("sasl"), b"hello") == b"hello"


@every_tidy_client
@every_mechanism
def test_a_client_with_a_wrong_password_is_refused(
    broker: Broker, client: Client, mechanism: str
) -> None:
    security = Security("SASL_PLAINTEXT", None, None, mechanism, "alice", "wrong")
    with pytest.raises(NotLetIn):
        client(broker.bootstrap, security, fresh("wrong"), b"")


@every_client
def test_a_client_logs_in_over_tls(encrypted: Broker, authority: Authority, client: Client) -> None:
    security = Security("SASL_SSL", authority.path, None, "SCRAM-SHA-512", "alice", "alice-secret")
    assert client(encrypted.bootstrap, security, fresh("sasl-ssl"), b"hello") == b"hello"


# Tokens


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="module")
def by_token(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    path = tmp_path_factory.mktemp("keys") / "jwks.json"
    path.write_bytes(jwks_of(issuer))
    with Broker(
        {
            **sasl_listener("SASL_PLAINTEXT"),
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": path.as_uri(),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
        }
    ) as running:
        yield running


@every_client
def test_a_client_logs_in_by_a_token(by_token: Broker, issuer: Issuer, client: Client) -> None:
    security = Security("SASL_PLAINTEXT", mechanism="OAUTHBEARER", password=issuer.sign())
    assert client(by_token.bootstrap, security, fresh("oauth"), b"hello") == b"hello"


@every_tidy_client
def test_a_client_with_an_expired_token_is_refused(
    by_token: Broker, issuer: Issuer, client: Client
) -> None:
    expired = issuer.sign(now_s=1_700_000_000)
    security = Security("SASL_PLAINTEXT", mechanism="OAUTHBEARER", password=expired)
    with pytest.raises(NotLetIn):
        client(by_token.bootstrap, security, fresh("oauth"), b"")
