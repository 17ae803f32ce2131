"""The loggers of this broker as config resources (KIP-412): their levels, read and altered.

- The loggers are Python's, from ``dohle`` down, and the audit log, which has Kafka's name.
  ``dohle`` itself is called ``root`` here: a broker may run inside another program, whose root
  logger must not be altered.
- Levels have Kafka's names. TRACE is below DEBUG; FATAL is CRITICAL.
- Nothing is stored: after a restart all levels are as configured.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from dohle.core.errors import ErrorCode, KafkaError
from dohle.metadata.configs import ConfigOperation
from dohle.protocol.messages.describe_configs import DescribeConfigsResourceResult
from dohle.protocol.messages.incremental_alter_configs import AlterableConfig
from dohle.server.rights import audit_log

ROOT = "root"
_PREFIX = "dohle"
_LEVELS = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_DYNAMIC_BROKER_LOGGER_CONFIG = 6


def describe_loggers(
    names: Collection[str] | None = None,
) -> tuple[DescribeConfigsResourceResult, ...]:
    """Return the effective level of each logger, or of those with these names if any are given."""
    return tuple(
        DescribeConfigsResourceResult(
            name=name,
            value=_level_name(logger.getEffectiveLevel()),
            config_source=_DYNAMIC_BROKER_LOGGER_CONFIG,
            documentation=None,
        )
        for name, logger in sorted(_loggers().items())
        if not names or name in names
    )


def alter_loggers(changes: Sequence[AlterableConfig], *, validate_only: bool) -> None:
    """Set or unset levels, all or none."""
    if len({change.name for change in changes}) < len(changes):
        raise _invalid("Error due to duplicate config keys")
    loggers = _loggers()
    levels = [(loggers.get(change.name), _checked_level(change, loggers)) for change in changes]
    if not validate_only:
        for logger, level in levels:
            if logger is not None:
                logger.setLevel(level)


def _loggers() -> dict[str, logging.Logger]:
    below = {
        name: logger
        for name, logger in logging.root.manager.loggerDict.items()
        if (name.startswith(f"{_PREFIX}.") or name == audit_log.name)
        and isinstance(logger, logging.Logger)
    }
    return {ROOT: logging.getLogger(_PREFIX), **below}


def _level_name(level: int) -> str:
    fitting = [name for name, least in _LEVELS.items() if level >= least]
    return fitting[-1] if fitting else "TRACE"


def _checked_level(change: AlterableConfig, loggers: dict[str, logging.Logger]) -> int:
    name = change.name
    if change.config_operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
        raise _invalid(
            f"operation {change.config_operation} is not possible for a logger: use SET or DELETE"
        )
    if change.config_operation == ConfigOperation.SET and change.value is None:
        raise _invalid(f"Null value not supported for : {name}")
    if name not in loggers:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if change.config_operation == ConfigOperation.DELETE:
        if name == ROOT:
            raise _invalid(f"Removing the log level of the {ROOT} logger is not allowed")
        return logging.NOTSET
    level = _LEVELS.get(change.value or "")
    if level is None:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {change.value}: it must be one of "
            f"{', '.join(sorted(_LEVELS))}",
        )
    return level


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
