"""Turning errors of a coordinator's log, or of another coordinator, into those that clients expect.

Clients know what to do about a coordinator's errors: look it up again, or wait. An error of its log
would make them refresh the metadata of a partition that they know nothing about.
"""

from __future__ import annotations

from dohle.core.errors import ErrorCode, KafkaError

_COORDINATOR_CODES = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def coordinator_error_code(error: KafkaError) -> ErrorCode:
    """Return the code to send to a client for a failure."""
    return _COORDINATOR_CODES.get(error.code, error.code)


def coordinator_error(error: KafkaError) -> KafkaError:
    """Return the failure with the code that a coordinator's client expects."""
    code = coordinator_error_code(error)
    return error if code is error.code else KafkaError(code, str(error.args[0]))
