"""What can go wrong between this client and a cluster, besides the error codes of brokers.

Every failure is a :class:`~dohle.core.errors.KafkaError`, so that a caller has one exception to
catch and one question to ask: is it worth a retry?
"""

from __future__ import annotations

from dohle.core.errors import ErrorCode, KafkaError


class ConnectionClosed(KafkaError):
    """The connection is gone or failed; requests in flight may or may not have been executed."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)


class TimedOut(KafkaError):
    """No answer, no space or no success within the given time."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class AuthenticationFailed(KafkaError):
    """Client and broker do not accept each other: a password or a certificate. No retry helps."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.SASL_AUTHENTICATION_FAILED, message)


class ClientClosed(KafkaError):
    """The client was closed before or during a call."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)


def is_retriable(error: KafkaError) -> bool:
    """Tell whether a retry may help. A broker that is unreachable now may come back."""
    if isinstance(error, ClientClosed):
        return False
    return error.code.retriable or error.code is ErrorCode.BROKER_NOT_AVAILABLE


def error_code_of(number: int) -> ErrorCode:
    """Return the error code of a number; UNKNOWN_SERVER_ERROR for one of a newer broker."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


#: What to do about errors that brokers answer without a word.
_ADVICE = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "an ACL must allow it to this user (resource Cluster)",
    ErrorCode.FENCED_INSTANCE_ID: "another consumer has the same group_instance_id",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "an ACL must allow it to this user (resource Group)",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "the other members of the group share no assignor with "
    "this one: see partition_assignment_strategy",
    ErrorCode.INVALID_SESSION_TIMEOUT: "session_timeout_ms must be from the broker's "
    "group.min.session.timeout.ms to its group.max.session.timeout.ms",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "a name has 1 to 249 of the characters a-z, A-Z, 0-9, '.', "
    "'_' and '-'",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "transaction_timeout_ms is more than the broker's "
    "transaction.max.timeout.ms",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "an ACL must allow it to this user (resource Topic)",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "an ACL must allow it to this user (resource "
    "TransactionalId)",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "it does not exist",
}


def answered_error(number: int, about: str, message: str | None = None) -> KafkaError:
    """Make the error of a response: what it is about, and the broker's message if there is one."""
    code = error_code_of(number)
    text = ": ".join(filter(None, (about, message or _ADVICE.get(code))))
    if code is ErrorCode.UNKNOWN_SERVER_ERROR and number != code:
        text += f" (error code {number}, which this client does not know)"
    return KafkaError(code, text)
