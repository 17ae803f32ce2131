"""Settings about security by the names of Java's clients and of librdkafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from dohle.client.settings.security import is_about_security, security_of
from dohle.core.config.listeners import SecurityProtocol
from dohle.core.errors import KafkaError
from dohle.security.client import SaslAccount
from dohle.security.jaas import jaas_text
from dohle.security.tls_context import own_certificate
from tests.security.authority import Authority

_ALICE = SaslAccount("SCRAM-SHA-256", "alice", "alice-secret")


@pytest.mark.parametrize(
    "named",
    [
        {
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": jaas_text("SCRAM-SHA-256", "alice", "alice-secret"),
        },
        {
            "sasl.mechanisms": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": "alice-secret",
        },
    ],
)
def test_a_user_is_named_as_java_or_librdkafka_do(tmp_path: Path, named: dict[str, str]) -> None:
    trusted = {"ssl.ca.location": Authority(tmp_path).path}
    found = security_of({"security.protocol": "sasl_ssl", **trusted, **named})
    assert (found.protocol, found.account) == (SecurityProtocol.SASL_SSL, _ALICE)
    assert found.context is not None
    assert "alice-secret" not in repr(found)


@pytest.mark.parametrize(
    ("named", "reason"),
    [
        ({"security.protocol": "TLS"}, "must be one of PLAINTEXT, SSL"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "GSSAPI"),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"},
            "the username and the password",
        ),
        (
            {"ssl.key.location": "/nowhere"},
            "ssl.key.location: /nowhere cannot be read: No such file",
        ),
        ({"ssl.key.pem": "..."}, "needed together: ssl.key.location and ssl.certificate.location"),
        (
            {"security.protocol": "SSL", "ssl.ca.location": "/nowhere/at/all"},
            "No such file",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(named: dict[str, str], reason: str) -> None:
    with pytest.raises(KafkaError, match=reason):
        security_of(named)


def test_a_key_and_its_certificate_may_be_in_files_of_their_own_or_texts_as_for_librdkafka(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("alice")
    (tmp_path / "a.key").write_text(issued.key)
    (tmp_path / "a.crt").write_text(issued.chain)
    of_files = {
        "security.protocol": "SSL",
        "ssl.ca.location": authority.path,
        "ssl.key.location": tmp_path / "a.key",
        "ssl.certificate.location": tmp_path / "a.crt",
    }
    of_texts = {
        "security.protocol": "SSL",
        "ssl.ca.pem": authority.text,
        "ssl.key.pem": issued.key,
        "ssl.certificate.pem": issued.chain,
    }
    one_file = {
        "security.protocol": "SSL",
        "ssl.ca.location": authority.path,
        "ssl.key.location": issued.path,
        "ssl.certificate.location": issued.path,
    }
    for named in (of_files, of_texts, one_file):
        found = security_of(named)
        assert own_certificate(found.tls) == issued.der


def test_other_settings_are_not_about_security() -> None:
    assert not is_about_security("bootstrap.servers")
    assert is_about_security("ssl.keystore.location")
