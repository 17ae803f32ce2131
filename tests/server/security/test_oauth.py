"""Listeners with OAUTHBEARER, and our own client (facts: security.md, section 4)."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from dohle.client.errors import AuthenticationFailed
from dohle.client.sync import Admin
from dohle.core.errors import KafkaError
from dohle.testing.broker import Broker
from tests.security.tokens import AUDIENCE, ISSUER, Issuer, jwks_of

PREFIX = "sasl.oauthbearer."


def listener(url: str, **more: str) -> dict[str, str]:
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{PREFIX}jwks.endpoint.url": url,
        f"{PREFIX}expected.issuer": ISSUER,
        f"{PREFIX}expected.audience": AUDIENCE,
        **more,
    }


def client(broker: Broker, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        **more,
    }


def topics_seen(settings: dict[str, Any]) -> object:
    with Admin(settings) as admin:
        return admin.list_topics()


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="module")
def broker(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    path = tmp_path_factory.mktemp("keys") / "jwks.json"
    path.write_bytes(jwks_of(issuer))
    with Broker(listener(path.as_uri())) as running:
        yield running


class Provider:
    """As kafka-python and aiokafka have them."""

    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token


class AsyncProvider(Provider):
    async def token(self) -> str:  # type: ignore[override]
        await asyncio.sleep(0)
        return self._token


def test_a_client_logs_in_by_whatever_has_its_token(
    broker: Broker, issuer: Issuer, tmp_path: Path
) -> None:
    token = issuer.sign()
    asked: list[str] = []

    def confluent(config: str) -> tuple[str, float]:
        asked.append(config)
        return token, 0.0

    file = tmp_path / "token"
    file.write_text(token + "\n")
    topics_seen(client(broker, oauth_cb=confluent, **{f"{PREFIX}config": "k=v"}))
    assert set(asked) == {"k=v"}
    topics_seen(client(broker, sasl_oauth_token_provider=Provider(token)))
    topics_seen(client(broker, sasl_oauth_token_provider=AsyncProvider(token)))
    topics_seen(client(broker, **{f"{PREFIX}token.endpoint.url": file.as_uri()}))


def test_a_token_of_somebody_else_is_refused_and_told(broker: Broker) -> None:
    with pytest.raises(AuthenticationFailed, match="invalid_token"):
        topics_seen(client(broker, sasl_oauth_token_provider=Provider(Issuer().sign())))


def test_a_session_is_as_long_as_its_token_and_is_renewed_with_a_new_one(
    broker: Broker, issuer: Issuer
) -> None:
    given: list[str] = []

    def give(_: str) -> tuple[str, float]:
        given.append(issuer.sign(life_s=3))
        return given[-1], 0.0

    with Admin(client(broker, oauth_cb=give)) as admin:
        for _ in range(100):
            admin.list_topics()
            if len(given) >= 3:
                break
            threading.Event().wait(0.1)
    assert len(given) >= 3


@pytest.mark.parametrize("url", [None, "ftp://localhost/jwks", "file:///not/there"])
def test_without_keys_it_does_not_start(url: str | None) -> None:
    config = listener(url or "")
    if url is None:
        del config[f"{PREFIX}jwks.endpoint.url"]
    with pytest.raises(KafkaError, match=r"jwks\.endpoint\.url"):
        Broker(config).start()


@contextmanager
def answering(answers: dict[str, bytes]) -> Iterator[str]:
    """Serve what is in a dict, whatever it is at the time."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            answers["asked"] = f"{self.headers['Authorization']} {body}".encode()
            self._answer()

        def _answer(self) -> None:
            found = answers.get(self.path)
            self.send_response(200 if found is not None else 404)
            self.end_headers()
            self.wfile.write(found or b"")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_keys_and_tokens_come_by_http_and_a_new_key_is_found(issuer: Issuer) -> None:
    answers = {"/jwks": jwks_of(issuer)}
    with answering(answers) as url, Broker(listener(f"{url}/jwks")) as broker:
        answers["/token"] = json.dumps({"access_token": issuer.sign()}).encode()
        settings = client(
            broker,
            **{
                f"{PREFIX}token.endpoint.url": f"{url}/token",
                f"{PREFIX}client.credentials.client.id": "me",
                f"{PREFIX}client.credentials.client.secret": "s3:cret",
                f"{PREFIX}scope": "read",
            },
        )
        topics_seen(settings)
        assert (
            answers["asked"] == b"Basic bWU6czMlM0FjcmV0 grant_type=client_credentials&scope=read"
        )
        second = Issuer("two")
        answers["/jwks"] = jwks_of(issuer, second)
        answers["/token"] = json.dumps({"access_token": second.sign()}).encode()
        for attempt in range(50):
            try:
                topics_seen(settings)
                break
            except AuthenticationFailed:
                # As in Kafka the first login makes the broker look, and is refused.
                assert attempt < 49
                threading.Event().wait(0.1)
