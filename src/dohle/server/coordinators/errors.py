"""How a group coordinator says to clients what its log or another coordinator has said to it.

Clients know what to do about a coordinator's errors: look for it again, or wait. Those of a log
would send them after a partition that is none of their business.
"""

from __future__ import annotations

from dohle.core.errors import ErrorCode, KafkaError

_SAID_OF_COORDINATOR = {
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
    """Return the code that tells a client of a failure."""
    return _SAID_OF_COORDINATOR.get(error.code, error.code)


def coordinator_error(error: KafkaError) -> KafkaError:
    """Return the failure as a coordinator tells of it."""
    code = coordinator_error_code(error)
    return error if code is error.code else KafkaError(code, str(error.args[0]))
