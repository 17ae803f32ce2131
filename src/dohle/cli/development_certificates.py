"""A certificate authority for development, and what it signs.

It exists to try TLS without knowing OpenSSL: its key lies beside what it has signed, so that nobody
but its owner should trust it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dohle.cli.errors import CliError
from dohle.cli.private_files import write_private

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_AUTHORITY_DAYS: Final = 3650
_DAYS: Final = 365
#: Certificates that expire sooner are signed anew.
_DAYS_LEFT_MIN: Final = 30
#: Clocks of others may be behind.
_CLOCK_SKEW: Final = timedelta(hours=1)


class DevelopmentAuthority:
    """The authority of a folder: ``ca.pem``, which clients trust, and ``ca.key``."""

    def __init__(self, folder: Path) -> None:
        """Take the one that is there, or make one; CliError without ``cryptography``."""
        try:
            import cryptography  # noqa: F401
        except ImportError:
            raise CliError(
                "certificates are made by the package cryptography: pip install 'dohle[tls]'"
            ) from None
        self._folder = folder
        self.path = folder / "ca.pem"
        self._key_path = folder / "ca.key"
        if self.path.exists() is not self._key_path.exists():
            raise CliError(
                f"{folder}: of ca.pem and ca.key one is missing; remove the other, and what it has "
                "signed, to have both made anew"
            )
        if not self.path.exists():
            self._make()
        self._key, self._certificate = self._load()

    def _make(self) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        key, name = _new_key(), _name("dohle development authority")
        builder = _builder(name, name, key, _AUTHORITY_DAYS, is_authority=True)
        ski = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        made = builder.add_extension(ski, critical=False).sign(key, hashes.SHA256())
        write_private(self._key_path, _key_text(key))
        write_private(self.path, _text(made))

    def _load(self) -> tuple[EllipticCurvePrivateKey, x509.Certificate]:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            key = load_pem_private_key(self._key_path.read_bytes(), None)
            certificate = x509.load_pem_x509_certificate(self.path.read_bytes())
        except (ValueError, TypeError):
            raise CliError(
                f"{self._folder}: ca.pem or ca.key cannot be read; remove both to have them made "
                "anew"
            ) from None
        if not isinstance(key, EllipticCurvePrivateKey):
            raise CliError(f"{self._key_path} is not of this authority: its keys are of type EC")
        return key, certificate

    def issue(self, file: str, name: str, hosts: Iterable[str] = ()) -> Path:
        """Return a file with a key and its certificate, for a name and hosts.

        The one that is there is kept if it was signed here, covers the hosts and has time left.
        """
        path, wanted = self._folder / file, set(hosts)
        if path.exists() and self._is_good(path, wanted):
            return path
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        key = _new_key()
        builder = _builder(_name(name), self._certificate.subject, key, _DAYS, is_authority=False)
        aki = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(aki, critical=False)
        if wanted:
            names = x509.SubjectAlternativeName([_host(host) for host in sorted(wanted)])
            builder = builder.add_extension(names, critical=False)
        write_private(path, _key_text(key) + _text(builder.sign(self._key, hashes.SHA256())))
        return path

    def _is_good(self, path: Path, hosts: set[str]) -> bool:
        from cryptography import x509
        from cryptography.exceptions import InvalidSignature

        try:
            found = x509.load_pem_x509_certificate(path.read_bytes())
            found.verify_directly_issued_by(self._certificate)
        except (ValueError, TypeError, InvalidSignature):
            return False
        if found.not_valid_after_utc < datetime.now(UTC) + timedelta(days=_DAYS_LEFT_MIN):
            return False
        names: set[str] = set()
        for extension in found.extensions:
            if isinstance(extension.value, x509.SubjectAlternativeName):
                names = {str(each.value) for each in extension.value}
        return hosts <= names


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _name(common: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    name: x509.Name,
    issuer: x509.Name,
    key: EllipticCurvePrivateKey,
    days: int,
    *,
    is_authority: bool,
) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.now(UTC)
    usage = x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(usage, critical=True)
    )


def _host(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _text(certificate: x509.Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()


def _key_text(key: EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
