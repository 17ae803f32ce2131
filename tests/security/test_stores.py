"""Key and trust stores (facts: security.md, section 2, store types)."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from dohle.core.errors import KafkaError
from dohle.security.tls_context import client_context, openssl_name, server_context
from dohle.security.tls_settings import Store, TlsSettings
from tests.security.authority import Authority, Issued, pem_of_key

_SECRET = "very-secret"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def issued(authority: Authority) -> Issued:
    return authority.issue()


def refused(store: Store) -> str:
    with pytest.raises(KafkaError) as caught:
        server_context(TlsSettings(key_store=store))
    assert _SECRET not in str(caught.value)
    assert _SECRET not in repr(store)
    return str(caught.value)


def test_a_file_has_key_and_certificates_with_anything_around_them(
    tmp_path: Path, issued: Issued
) -> None:
    path = tmp_path / "store.pem"
    path.write_text(f"Bag Attributes\n{issued.key}subject=x\n{issued.chain.rstrip()}")
    server_context(TlsSettings(key_store=Store("PEM", str(path))))


def test_texts_may_come_in_one_line(issued: Issued) -> None:
    """Section 2: "Inline text may come as one line with `\\` continuation"."""
    key, chain = issued.key.replace("\n", " "), issued.chain.replace("\n", " ")
    server_context(TlsSettings(key_store=Store("PEM", key=key, certificates=chain)))


def test_an_encrypted_key_needs_its_password(issued: Issued) -> None:
    key = pem_of_key(issued.private_key, _SECRET)
    store = Store("PEM", key=key, certificates=issued.chain, key_password=_SECRET)
    server_context(TlsSettings(key_store=store))
    assert "ssl.key.password is not set" in refused(
        Store("PEM", key=key, certificates=issued.chain)
    )
    wrong = Store("PEM", key=key, certificates=issued.chain, key_password="other")
    assert "ssl.key.password is wrong" in refused(wrong)


def test_what_contradicts_itself_is_refused(authority: Authority, issued: Issued) -> None:
    """Section 2: "both or neither, no location, no store password: each violation is …"."""
    key, chain = issued.key, issued.chain
    assert "together" in refused(Store("PEM", key=key))
    assert "together" in refused(Store("PEM", certificates=chain))
    assert "location" in refused(Store("PEM", issued.path, key=key, certificates=chain))
    assert "password" in refused(Store("PEM", password=_SECRET, key=key, certificates=chain))
    assert "password" in refused(Store("PEM", issued.path, password=_SECRET))
    assert "type=PEM" in refused(Store("PKCS12", key=key, certificates=chain))
    assert "found 2" in refused(Store("PEM", key=key + key, certificates=chain))
    assert "no certificate" in refused(Store("PEM", key=key, certificates=key))
    assert "do not belong together" in refused(
        Store("PEM", key=authority.issue().key, certificates=chain)
    )
    assert "No such file" in refused(Store("PEM", "/nowhere/at/all"))
    assert "it must be PEM, PKCS12 or JKS" in refused(Store("BKS", issued.path))


def test_a_key_of_the_old_form_is_refused_with_the_command_that_converts_it(
    issued: Issued,
) -> None:
    """Section 2: "PKCS#1 … fails to load"."""
    old = issued.private_key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    ).decode()
    assert "openssl pkcs8" in refused(Store("PEM", key=old, certificates=issued.chain))


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_pkcs12_is_read_also_under_the_name_of_jks(
    tmp_path: Path, authority: Authority, issued: Issued, kind: str
) -> None:
    path = tmp_path / "store.p12"
    encryption = serialization.BestAvailableEncryption(_SECRET.encode())
    path.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"me", issued.private_key, issued.certificate, [authority.certificate], encryption
        )
    )
    server_context(TlsSettings(key_store=Store(kind, str(path), _SECRET)))
    trusting = client_context(TlsSettings(trust_store=Store(kind, str(path), _SECRET)))
    assert len(trusting.get_ca_certs()) == 1
    assert "password is wrong" in refused(Store(kind, str(path), "other"))
    assert "password is not set" in refused(Store(kind, str(path)))


def test_javas_old_format_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    path = tmp_path / "store.jks"
    path.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    assert "keytool -importkeystore" in refused(Store("JKS", str(path), _SECRET))


def settings_with(issued: Issued, *suites: str) -> TlsSettings:
    return TlsSettings(key_store=Store("PEM", issued.path), cipher_suites=suites)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    """Whoever may alter settings must not stop a node by the name of a pipe or a device."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (str(pipe), "/dev/zero"):
        with pytest.raises(KafkaError, match=f"ssl.keystore.location={path}: this is not a file"):
            server_context(TlsSettings(key_store=Store("PEM", path)))


def test_cipher_suites_have_javas_names_or_openssls(issued: Issued) -> None:
    java = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    for name in (java, "ECDHE-ECDSA-AES128-GCM-SHA256"):
        context = server_context(settings_with(issued, name))
        assert context.maximum_version == ssl.TLSVersion.TLSv1_2
        names = {each["name"] for each in context.get_ciphers()}
        assert "ECDHE-ECDSA-AES128-GCM-SHA256" in names
        assert "ECDHE-RSA-AES256-GCM-SHA384" not in names
    assert openssl_name("TLS_RSA_WITH_AES_256_CBC_SHA256") == "AES256-SHA256"
    chacha = "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"
    assert openssl_name(chacha) == "ECDHE-RSA-CHACHA20-POLY1305"


def test_one_suite_alone_of_tls_1_3_cannot_be_chosen(issued: Issued) -> None:
    with pytest.raises(KafkaError, match="does not let a program choose"):
        server_context(settings_with(issued, "TLS_AES_128_GCM_SHA256"))
