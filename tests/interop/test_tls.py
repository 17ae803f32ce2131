"""Other people's clients over TLS (facts: security.md, section 2)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dohle.testing.broker import Broker
from tests.interop.quick_broker import fresh
from tests.interop.secured_clients import CLIENTS, TIDY, Client, NotLetIn, Security
from tests.security.authority import Authority
from tests.server.security.secured import peers_of, tls_listener

pytestmark = pytest.mark.slow
every_client = pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
# kafka-python is refused too, but leaves sockets open that fail the run at its end.
every_tidy_client = pytest.mark.parametrize("client", TIDY.values(), ids=TIDY)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[Broker]:
    properties = tls_listener(authority.issue(), authority, **{"ssl.client.auth": "requested"})
    with Broker(properties) as running:
        yield running


@pytest.fixture(scope="module")
def strict(authority: Authority) -> Iterator[Broker]:
    properties = tls_listener(authority.issue(), authority, **{"ssl.client.auth": "required"})
    with Broker(properties) as running:
        yield running


@every_client
def test_a_client_writes_and_reads(broker: Broker, authority: Authority, client: Client) -> None:
    security = Security("SSL", trusted=authority.path)
    assert client(broker.bootstrap, security, fresh("tls"), b"x" * 300_000) == b"x" * 300_000


@every_client
def test_a_client_with_a_certificate_is_let_in(
    strict: Broker, authority: Authority, client: Client
) -> None:
    own = authority.issue("alice")
    security = Security("SSL", trusted=authority.path, own=own.path)
    assert client(strict.bootstrap, security, fresh("mtls"), b"hello") == b"hello"


@every_tidy_client
def test_a_client_does_not_trust_a_broker_of_another_authority(
    broker: Broker, tmp_path: Path, client: Client
) -> None:
    security = Security("SSL", trusted=Authority(tmp_path, "stranger").path)
    with pytest.raises(NotLetIn):
        client(broker.bootstrap, security, fresh("stranger"), b"")


def test_a_client_whose_certificate_has_expired_is_refused(
    strict: Broker, authority: Authority
) -> None:
    own = authority.issue("late", days=-1)
    security = Security("SSL", trusted=authority.path, own=own.path)
    with pytest.raises(NotLetIn):
        CLIENTS["librdkafka"](strict.bootstrap, security, fresh("late"), b"")


def test_openssl_sees_the_certificate_and_both_versions(
    broker: Broker, authority: Authority
) -> None:
    for version, shown in (("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")):
        trusting = ["-CAfile", authority.path, "-verify_return_error"]
        done = subprocess.run(
            ["openssl", "s_client", "-connect", broker.bootstrap, *trusting, "-brief", version],
            input=b"",
            capture_output=True,
            timeout=30,
            check=True,
        )
        told = (done.stdout + done.stderr).decode()
        assert f"Protocol version: {shown}" in told
        assert "Verification: OK" in told
    assert peers_of(broker) <= {"User:ANONYMOUS"}
