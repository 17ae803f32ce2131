"""Configs as an admin client's arguments and results."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from dohle.core.config.definition import ConfigType


class ResourceType(IntEnum):
    """What can have configs, by the number in requests."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """A topic, a broker or another thing with configs; the broker "" is the cluster's default."""

    type: ResourceType
    name: str


class ConfigSource(IntEnum):
    """Where a config's value comes from, by its number in requests; the first that is set wins."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class AlterOp(IntEnum):
    """What is done to a config; the last two are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One change of one config; to delete it no value is needed."""

    name: str
    op: AlterOp
    value: str | None = None


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """The value of a config from one of its sources."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A config and its value; the value of a sensitive one is None."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool = False
    is_sensitive: bool = False
    type: ConfigType = ConfigType.UNKNOWN
    documentation: str | None = None
    synonyms: tuple[ConfigSynonym, ...] = ()

    @property
    def is_default(self) -> bool:
        """Whether it was never set."""
        return self.source is ConfigSource.DEFAULT_CONFIG
