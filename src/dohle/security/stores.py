"""Key and trust stores: from the settings, or a file's bytes, to PEM text.

PEM is read here. PKCS12 needs the package ``cryptography`` (``dohle[tls]``). A file of type JKS is
accepted if it is PKCS12 in truth, as Java does; one of the old format is refused with the command
that converts it. Whatever fails, no password and no key gets into a message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from dohle.security.pem import certificates_in, private_key_in
from dohle.security.refusal import refusal
from dohle.security.tls_settings import Store

#: Reads a file; OSError if it cannot.
Read = Callable[[str], bytes]

_JKS_MAGIC: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_PEM, _PKCS12, _JKS = "PEM", "PKCS12", "JKS"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A private key and its certificates, as PEM text."""

    key: str = field(repr=False)
    chain: str
    #: What the key is encrypted with.
    password: str | None = field(default=None, repr=False)


def load_key_pair(store: Store, read: Read) -> KeyPair:
    """Return what a node or a client shows to others."""
    where = "ssl.keystore"
    if store.key or store.certificates:
        _check_inline(store, where)
        if not (store.key and store.certificates):
            raise refusal(f"{where}.key and {where}.certificate.chain must be given together")
        return _pair_of_pem(store, store.key, store.certificates, where)
    kind, data = _read(store, where, read)
    if kind == _PEM:
        if store.password:
            raise refusal(f"{where}.password must not be set for a PEM file: see ssl.key.password")
        text = data.decode("latin-1")
        return _pair_of_pem(store, text, text, str(store.location))
    return _pair_of_pkcs12(store, data)


def load_trusted(store: Store, read: Read) -> str:
    """Return the certificates that are trusted, as PEM text."""
    where = "ssl.truststore"
    if store.certificates:
        _check_inline(store, where)
        return certificates_in(store.certificates, f"{where}.certificates")
    kind, data = _read(store, where, read)
    if kind == _PEM:
        if store.password:
            raise refusal(f"{where}.password must not be set for a PEM file")
        return certificates_in(data.decode("latin-1"), str(store.location))
    _, certificates = _open_pkcs12(data, store.password, store)
    if not certificates:
        raise refusal(f"{store.location}: there is no certificate in it")
    return "".join(certificates)


def _check_inline(store: Store, where: str) -> None:
    if store.type.upper() != _PEM:
        raise refusal(f"Texts of certificates and keys need {where}.type=PEM, not {store.type}")
    if store.location:
        raise refusal(f"Both {where}.location and texts of certificates or keys are given")
    if store.password:
        raise refusal(f"{where}.password must not be set for PEM: see ssl.key.password")


def _pair_of_pem(store: Store, key: str, certificates: str, where: str) -> KeyPair:
    has_password = store.key_password is not None
    return KeyPair(
        private_key_in(key, where, has_password=has_password),
        certificates_in(certificates, where),
        store.key_password,
    )


def _pair_of_pkcs12(store: Store, data: bytes) -> KeyPair:
    if store.password is None:
        raise refusal(f"{store.location}: ssl.keystore.password is not set")
    key, certificates = _open_pkcs12(data, store.password, store)
    if key is None or not certificates:
        raise refusal(f"{store.location}: there is no private key with a certificate in it")
    return KeyPair(key, "".join(certificates))


def _read(store: Store, where: str, read: Read) -> tuple[str, bytes]:
    """Return the format of a store's file, and its bytes."""
    if store.location is None:
        raise refusal(f"{where}.location is not set")
    kind = store.type.upper()
    if kind not in (_PEM, _PKCS12, _JKS):
        raise refusal(f"{where}.type is {store.type}: it must be PEM, PKCS12 or JKS")
    try:
        data = read(store.location)
    except OSError as error:
        raise refusal(f"{where}.location={store.location}: {error.strerror}") from None
    if data.startswith(_JKS_MAGIC):
        raise refusal(
            f"{store.location} is in Java's old JKS format, which is not read here; convert it "
            f"with: keytool -importkeystore -srckeystore {store.location} -destkeystore "
            f"{store.location}.p12 -deststoretype PKCS12"
        )
    return (kind if kind == _PEM else _PKCS12), data


def _open_pkcs12(
    data: bytes, password: str | None, store: Store
) -> tuple[str | None, tuple[str, ...]]:
    """Return the key, if there is one, and the certificates; its own comes first."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise refusal(
            f"{store.location}: PKCS12 needs the package cryptography: pip install 'dohle[tls]', "
            "or use PEM files"
        ) from None
    try:
        opened = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError:
        raise refusal(
            f"{store.location}: it is not of type {store.type}, or its password is wrong"
        ) from None
    pem = serialization.Encoding.PEM
    found = [*([opened.cert] if opened.cert else []), *opened.additional_certs]
    certificates = tuple(each.certificate.public_bytes(pem).decode() for each in found)
    if opened.key is None:
        return None, certificates
    key = opened.key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return key.decode(), certificates
