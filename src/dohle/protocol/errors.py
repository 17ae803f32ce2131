"""What can go wrong between bytes and messages: three errors, one for each side at fault.

The peer sent something invalid (:class:`MalformedMessage`), we tried to send something invalid
(:class:`UnencodableMessage`), or the two share no version (:class:`UnsupportedVersion`).
"""

from __future__ import annotations

from dohle.core.errors import ErrorCode, KafkaError


class MalformedMessage(ValueError):
    """Bytes that are not the message they claim to be; the only error that decoding can raise."""


class UnencodableMessage(ValueError):
    """A value that its field cannot carry: out of range, too long, of another type, or null."""


class UnsupportedVersion(KafkaError):
    """A version the message does not have, or a field that the version cannot carry."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, message)


class UnknownRecordType(UnsupportedVersion):
    """A record with a key or type that no schema has; most likely a newer release wrote it."""
