"""How settings of security are refused."""

from __future__ import annotations

from dohle.core.errors import ErrorCode, KafkaError


def refusal(message: str) -> KafkaError:
    """Return the error for settings that cannot be used; no secret may be in the message."""
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
