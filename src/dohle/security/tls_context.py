"""From the settings of TLS to OpenSSL's contexts.

OpenSSL takes a private key from a file only. It gets one that is in memory, and gone at once.
"""

from __future__ import annotations

import errno
import os
import ssl
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from dohle.security.distinguished_names import alternative_names, subject_name
from dohle.security.refusal import refusal
from dohle.security.stores import KeyPair, Read, load_key_pair, load_trusted
from dohle.security.tls_settings import CLIENT_AUTH, TlsSettings

_VERSIONS: Final = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
_MODES: Final = dict(
    zip(CLIENT_AUTH, (ssl.CERT_NONE, ssl.CERT_OPTIONAL, ssl.CERT_REQUIRED), strict=True)
)
_SUITES_OF_TLS_1_3: Final = frozenset(
    {"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"}
)

#: All authorities of a system are a quarter of a megabyte.
_STORE_BYTES_MAX: Final = 16 * 1024 * 1024


def read_file(path: str) -> bytes:
    """Read a store's file; anything but a file could keep the node waiting for ever."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "this is not a file")
        if found.st_size > _STORE_BYTES_MAX:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        return file.read(_STORE_BYTES_MAX)


def file_stamp(path: str) -> tuple[int, int] | None:
    """Return by what a change of a file is seen; None if it cannot be read."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def own_certificate(settings: TlsSettings, read: Read = read_file) -> bytes:
    """Return the certificate that is shown to others, in DER."""
    chain = load_key_pair(settings.key_store, read).chain
    end = "-----END CERTIFICATE-----"
    return ssl.PEM_cert_to_DER_cert(chain.partition(end)[0] + end)


def check_renewal(
    before: bytes, after: bytes, *, may_change_name: bool, may_lose_names: bool
) -> None:
    """Refuse a new certificate that is somebody else's, unless that is allowed."""
    if not may_change_name and subject_name(before) != subject_name(after):
        raise refusal(
            f"Keystore DistinguishedName does not match: {subject_name(before)} became "
            f"{subject_name(after)} (see ssl.allow.dn.changes)"
        )
    if not may_lose_names and not alternative_names(before) <= alternative_names(after):
        raise refusal(
            "Keystore SubjectAltNames do not match: some are missing in the new certificate (see "
            "ssl.allow.san.changes)"
        )


def server_context(settings: TlsSettings, read: Read = read_file) -> ssl.SSLContext:
    """Make the context of a listener; INVALID_CONFIG says what is wrong with the settings."""
    if not settings.key_store.is_given:
        raise refusal("A listener with TLS needs a certificate: set ssl.keystore.location")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(context, load_key_pair(settings.key_store, read))
    context.verify_mode = _MODES[settings.client_auth]
    if settings.client_auth != "none" or settings.trust_store.is_given:
        _trust(context, settings, read)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    _restrict(context, settings)
    return context


def client_context(settings: TlsSettings, read: Read = read_file) -> ssl.SSLContext:
    """Make the context of a client; INVALID_CONFIG says what is wrong with the settings."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.checks_host
    if settings.key_store.is_given:
        _load(context, load_key_pair(settings.key_store, read))
    _trust(context, settings, read)
    _restrict(context, settings)
    return context


def _trust(context: ssl.SSLContext, settings: TlsSettings, read: Read) -> None:
    if not settings.trust_store.is_given:
        context.load_default_certs()
        return
    # As Java does, trust what is in the store, even if somebody else has signed it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=load_trusted(settings.trust_store, read))
    except ssl.SSLError as error:
        raise refusal(f"ssl.truststore: a certificate cannot be read ({error.reason})") from None


def _load(context: ssl.SSLContext, pair: KeyPair) -> None:
    password = pair.password or ""
    with _file_of(pair.key + pair.chain) as path:
        try:
            # Without a password OpenSSL would ask for one at the terminal.
            context.load_cert_chain(path, password=lambda: password)
        except ssl.SSLError as error:
            reason = error.reason or "the password is wrong"
            raise refusal(
                f"ssl.keystore: the private key and its certificate cannot be used ({reason}): "
                "they do not belong together, or ssl.key.password is wrong"
            ) from None


def _restrict(context: ssl.SSLContext, settings: TlsSettings) -> None:
    unknown = [name for name in settings.protocols if name not in _VERSIONS]
    if unknown:
        raise refusal(f"ssl.enabled.protocols: {', '.join(unknown)} is not known")
    versions = sorted(_VERSIONS[name] for name in settings.protocols)
    if settings.cipher_suites:
        newest = _SUITES_OF_TLS_1_3.intersection(settings.cipher_suites)
        if newest and newest != _SUITES_OF_TLS_1_3:
            raise refusal(
                "ssl.cipher.suites: OpenSSL does not let a program choose among the suites of "
                f"TLSv1.3: list {', '.join(sorted(_SUITES_OF_TLS_1_3))}, or none of them"
            )
        older = [name for name in settings.cipher_suites if name not in newest]
        if not newest:
            versions = [one for one in versions if one < ssl.TLSVersion.TLSv1_3]
        if not older:
            versions = [one for one in versions if one == ssl.TLSVersion.TLSv1_3]
        elif older:
            _set_ciphers(context, older)
    if not versions:
        raise refusal("ssl.cipher.suites: none of them is one of ssl.enabled.protocols")
    context.minimum_version, context.maximum_version = versions[0], versions[-1]


def _set_ciphers(context: ssl.SSLContext, names: list[str]) -> None:
    try:
        context.set_ciphers(":".join(map(openssl_name, names)))
    except ssl.SSLError:
        raise refusal(f"ssl.cipher.suites: {', '.join(names)}: none of them is known") from None


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a cipher suite that has a name of Java's."""
    if not suite.startswith(("TLS_", "SSL_")):
        return suite
    exchange, _, cipher = suite[4:].partition("_WITH_")
    cipher = cipher.replace("AES_", "AES").replace("_CBC", "").replace("_", "-")
    if cipher.startswith("CHACHA20"):
        cipher = cipher.removesuffix("-SHA256")
    exchange = "" if exchange == "RSA" else exchange.replace("_", "-") + "-"
    return exchange + cipher


@contextmanager
def _file_of(text: str) -> Iterator[str]:
    """Give a text a path that nobody else can read."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("dohle-key"), "w") as file:
            file.write(text)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(text)
            file.flush()
            yield file.name
