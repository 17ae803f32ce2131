"""What tells that a user does not exist (facts: security.md, section 4, SCRAM: "dohle: …")."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from dohle.testing.broker import Broker
from tests.server.security.raw import Raw
from tests.server.security.secured import sasl_listener


def _salt_of_nobody(port: int) -> bytes:
    there = cast("Broker", SimpleNamespace(bootstrap=f"127.0.0.1:{port}"))
    with Raw(there) as raw:
        assert raw.handshake("SCRAM-SHA-256") is not None
        answer = raw.authenticate(b"n,,n=nobody,r=abc")
        assert answer is not None
        return answer.auth_bytes.split(b",")[1]


def test_a_salt_that_is_made_up_is_the_same_everywhere_as_that_of_a_user() -> None:
    listeners = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,OTHER:SASL_PLAINTEXT",
    }
    with Broker({**sasl_listener("SASL_PLAINTEXT"), **listeners}) as broker:
        first, second = (_salt_of_nobody(each.port) for each in broker.node.listeners)
    assert first[:2] == b"s="
    assert first == second
