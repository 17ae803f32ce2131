"""A certificate authority for tests, and what it has signed, in files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_NOT_ENCRYPTED = serialization.NoEncryption()


def name_of(*pairs: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(kind, value) for kind, value in pairs])


def pem_of_key(key: ec.EllipticCurvePrivateKey, password: str | None = None) -> str:
    encryption: serialization.KeySerializationEncryption = _NOT_ENCRYPTED
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password.encode())
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    ).decode()


class Issued:
    """A key and its certificate."""

    def __init__(self, folder: Path, key: ec.EllipticCurvePrivateKey, made: x509.Certificate):
        self._folder, self.private_key, self.certificate = folder, key, made

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)

    @property
    def chain(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def key(self) -> str:
        return pem_of_key(self.private_key)

    @cached_property
    def path(self) -> str:
        """One file with both, as Kafka wants it."""
        path = self._folder / f"{self.certificate.serial_number:x}.pem"
        path.write_text(self.key + self.chain)
        return str(path)


class Authority:
    """Signs certificates; its own is in ``path``."""

    def __init__(self, folder: Path, name: str = "test authority") -> None:
        self._folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self._name = name_of((NameOID.COMMON_NAME, name))
        self.certificate = self._sign(self._name, self.key, is_authority=True)
        self.path = str(folder / f"{name.replace(' ', '-')}.pem")
        Path(self.path).write_text(self.text)

    @property
    def text(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *,
        is_authority: bool = False,
        days: int = 1,
        hosts: tuple[str, ...] = ("localhost",),
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=30))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if not is_authority:
            names: list[x509.GeneralName] = [x509.DNSName(host) for host in hosts]
            names.append(x509.IPAddress(ip_address("127.0.0.1")))
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def issue(
        self,
        name: str | x509.Name = "localhost",
        *,
        days: int = 1,
        hosts: tuple[str, ...] = ("localhost",),
    ) -> Issued:
        """Sign a certificate for a name; with ``days`` below zero it has expired."""
        if isinstance(name, str):
            name = name_of((NameOID.COMMON_NAME, name))
        key = ec.generate_private_key(ec.SECP256R1())
        return Issued(self._folder, key, self._sign(name, key, days=days, hosts=hosts))


def key_store(issued: Issued, prefix: str = "") -> dict[str, str]:
    return {
        f"{prefix}ssl.keystore.type": "PEM",
        f"{prefix}ssl.keystore.location": issued.path,
    }


def trust_store(authority: Authority, prefix: str = "") -> dict[str, str]:
    return {
        f"{prefix}ssl.truststore.type": "PEM",
        f"{prefix}ssl.truststore.location": authority.path,
    }
