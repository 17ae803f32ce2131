"""What can go wrong between this client and a cluster, beside the codes that brokers answer with.

Every failure is a :class:`~dohle.core.errors.KafkaError`, so that a caller has one thing to catch
and the same question to ask of it: is it worth another try?
"""

from __future__ import annotations

from dohle.core.errors import ErrorCode, KafkaError


class ConnectionClosed(KafkaError):
    """The connection is gone, or never came to be; what was in flight may have been done or not."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)


class TimedOut(KafkaError):
    """No answer, no room or no success within the time that was set."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class ClientClosed(KafkaError):
    """The client was closed while, or before, it was asked for something."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)


def is_retriable(error: KafkaError) -> bool:
    """Tell whether another try may help. A broker that is not there now may come back."""
    if isinstance(error, ClientClosed):
        return False
    return error.code.retriable or error.code is ErrorCode.BROKER_NOT_AVAILABLE


def error_code_of(number: int) -> ErrorCode:
    """Return the code of a number; one that a newer broker invented counts as unknown."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def answered_error(number: int, about: str, message: str | None = None) -> KafkaError:
    """Make the error of an answer: what it is about, and what the broker said if it said more."""
    code = error_code_of(number)
    text = about if not message else f"{about}: {message}"
    if code is ErrorCode.UNKNOWN_SERVER_ERROR and number != code:
        text += f" (error code {number}, which this client does not know)"
    return KafkaError(code, text)
