"""The static configuration of a node: ``server.properties``, parsed and checked as a whole.

A file written for Apache Kafka works as it is. What has no effect here gives a notice, an unknown
name a warning with the nearest known one, and a value that is not allowed an error. What depends on
the roles of the node is in :mod:`dohle.core.config.roles`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from dohle.core.config.authorizer import OF_AUTHORIZER, authorizer_settings
from dohle.core.config.broker import BROKER_CONFIGS
from dohle.core.config.definition import ConfigValue, ConfigValues, UpdateMode
from dohle.core.config.listeners import Listener, parse_address
from dohle.core.config.roles import Placement, place
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId

#: The configs of a node that is started without a file, beneath the options its operator gives.
SINGLE_NODE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "node.id": "1",
        "process.roles": "broker,controller",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.replication.factor": "1",
    }
)

_REQUIRED: Final = ("process.roles", "node.id")
_NO_CONFIGS: Final[Mapping[str, str]] = MappingProxyType({})
_LISTENER_PREFIX: Final = "listener.name."
_MECHANISMS: Final = ("gssapi", "oauthbearer", "plain", "scram-sha-256", "scram-sha-512")
_OF_ENTRANCES: Final = ("connections.max.reauth.", "sasl.", "ssl.")
_JAAS: Final = "sasl.jaas.config"
_PLUGIN_PREFIXES: Final = ("config.providers.", "rlmm.config.", "rsm.config.")
#: Those that ``server.tier`` uses, if the prefixes are not others.
_OF_TIER: Final = frozenset(
    {
        "rsm.config.key.prefix",
        "rsm.config.storage.backend.class",
        "rsm.config.storage.root",
        "rsm.config.url",
        "rlmm.config.remote.log.metadata.topic.num.partitions",
        "rlmm.config.remote.log.metadata.topic.replication.factor",
        "rlmm.config.remote.log.metadata.topic.retention.ms",
    }
)
_SIMILARITY_MIN: Final = 0.7
# The smallest values allowed by the topic configs that these are the defaults of.
_LEAST: Final = {
    "log.flush.interval.ms": 0,
    "log.flush.scheduler.interval.ms": 0,
    "log.roll.jitter.ms": 0,
    "log.roll.ms": 1,
}


class NoticeLevel(Enum):
    """How important a notice is."""

    INFO = "info"
    WARNING = "warning"


class Notice(NamedTuple):
    """Something in the properties that the operator should know."""

    level: NoticeLevel
    key: str
    message: str
    #: Neither Kafka nor dohle knows it: a typing error, or another program's.
    is_unknown: bool = False


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The configs a node was started with, checked. ``config[name]`` is a typed value."""

    #: Every config of the table: the given value, or the default.
    values: ConfigValues
    #: The given texts, unparsed; those of unknown names too, as in Kafka.
    texts: Mapping[str, str]
    #: Its roles, its addresses, and where the quorum is.
    placement: Placement

    @classmethod
    def from_properties(cls, pairs: Mapping[str, str]) -> tuple[BrokerConfig, list[Notice]]:
        """Parse and check the pairs of a ``server.properties``; INVALID_CONFIG says what is wrong.

        The notices tell the operator which of the pairs have no effect.
        """
        pairs = _with_node_id(pairs)
        values, wrong = ConfigValues(), []
        for name, key in BROKER_CONFIGS.items():
            try:
                values[name] = key.parse(pairs[name]) if name in pairs else key.default
            except KafkaError as error:
                wrong.append(error.args[0])
        if wrong:
            raise _refusal("\n".join(wrong))
        for name in _REQUIRED:
            if values[name] is None:
                raise _refusal(
                    f'Missing required configuration "{name}" which has no default value. '
                    f"{BROKER_CONFIGS[name].doc}"
                )
        config = _checked(values, pairs)
        notices = [notice for name in pairs for notice in _notices(name)]
        return config, [*notices, *_notices_of_roles(config.placement), *_notices_of_times(values)]

    def __getitem__(self, name: str) -> ConfigValue:
        return self.values[name]

    def is_set(self, name: str) -> bool:
        """Tell whether the config was given, even if with its default value."""
        return name in self.texts

    def text(self, name: str) -> str | None:
        """Return the given text, unparsed; None if there was none."""
        return self.texts.get(name)

    def get_int(self, name: str) -> int:
        """Return a value of type INT, SHORT or LONG."""
        return self.values.get_int(name)

    def get_bool(self, name: str) -> bool:
        """Return a value of type BOOLEAN."""
        return self.values.get_bool(name)

    def get_str(self, name: str) -> str:
        """Return a value of type STRING."""
        return self.values.get_str(name)

    def get_list(self, name: str) -> tuple[str, ...]:
        """Return a value of type LIST."""
        return self.values.get_list(name)

    def effective(
        self,
        name: str,
        dynamic_broker: Mapping[str, str] = _NO_CONFIGS,
        dynamic_default: Mapping[str, str] = _NO_CONFIGS,
    ) -> ConfigValue:
        """Return the configs in effect when these dynamic configs override the static ones."""
        text = dynamic_broker.get(name)
        if text is None:
            text = dynamic_default.get(name)
        key = BROKER_CONFIGS[name]
        if text is None or key.update_mode is UpdateMode.READ_ONLY:
            return self.values[name]
        return key.parse(text)

    @property
    def node_id(self) -> BrokerId:
        """The id of this node."""
        return BrokerId(self.get_int("node.id"))

    @property
    def rack(self) -> str | None:
        """The rack of this node."""
        return None if self["broker.rack"] is None else self.get_str("broker.rack")

    @property
    def metrics_listener(self) -> tuple[str, int] | None:
        """Where metrics are served, as host and port; None if they are not."""
        text = self["metrics.listener"]
        return parse_address(str(text), "metrics.listener") if text else None

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """All listeners, including the controller's."""
        return self.placement.listeners

    @property
    def advertised_listeners(self) -> tuple[Listener, ...]:
        """What clients are told."""
        return self.placement.advertised_listeners

    @property
    def broker_listeners(self) -> tuple[Listener, ...]:
        """The listeners for clients and other brokers."""
        controllers = self.placement.controller_listener_names
        return tuple(one for one in self.listeners if one.name not in controllers)

    @property
    def controller_listeners(self) -> tuple[Listener, ...]:
        """The controller's listeners; there may be none."""
        controllers = self.placement.controller_listener_names
        return tuple(one for one in self.listeners if one.name in controllers)

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The data directories."""
        return self.get_list("log.dir" if self["log.dirs"] is None else "log.dirs")

    @property
    def metadata_log_dir(self) -> str:
        """The directory of the metadata log."""
        given = self["metadata.log.dir"]
        return self.log_dirs[0] if given is None else self.get_str("metadata.log.dir")


def effective_broker_config(
    broker: BrokerConfig,
    dynamic_broker: Mapping[str, str] = _NO_CONFIGS,
    dynamic_default: Mapping[str, str] = _NO_CONFIGS,
) -> ConfigValues:
    """Return every broker config, with the dynamic values over the static ones."""
    values = ConfigValues(broker.values)
    for name in {**dynamic_default, **dynamic_broker}:
        if name in BROKER_CONFIGS:
            values[name] = broker.effective(name, dynamic_broker, dynamic_default)
    return values


def _with_node_id(pairs: Mapping[str, str]) -> Mapping[str, str]:
    """Accept ``broker.id``, the name from before KRaft, as ``node.id``; either names both."""
    given = [pairs[name] for name in ("node.id", "broker.id") if name in pairs]
    if not given:
        return pairs
    if given[0].strip() != given[-1].strip():
        raise _refusal("You must set `node.id` to the same value as `broker.id`.")
    return {**pairs, "node.id": given[0], "broker.id": given[0]}


def _notices(name: str) -> list[Notice]:
    """Return what the operator should know about a config that was given, if anything."""
    key = BROKER_CONFIGS.get(name)
    if key is None and base_name(name).startswith(_OF_ENTRANCES):
        # Those of security have effect for single listeners and mechanisms.
        key = BROKER_CONFIGS.get(base_name(name))
    elif name == _JAAS:
        message = f"{name} has effect only with the prefix of a mechanism, such as plain.{name}"
        return [Notice(NoticeLevel.WARNING, name, message)]
    if key is not None:
        if not key.no_effect:
            return []
        message = f"{name} has no effect in dohle: {key.no_effect}"
        return [Notice(NoticeLevel.INFO, name, message)]
    if name in _OF_TIER or name in OF_AUTHORIZER:
        return []
    if _is_known(name):
        return [Notice(NoticeLevel.INFO, name, f"{name} has no effect in dohle")]
    import difflib  # costs milliseconds, and names are rarely unknown

    nearest = difflib.get_close_matches(name, BROKER_CONFIGS, n=1, cutoff=_SIMILARITY_MIN)
    hint = f", did you mean {nearest[0]}?" if nearest else ""
    message = f"{name} is not a known configuration{hint}"
    return [Notice(NoticeLevel.WARNING, name, message, is_unknown=True)]


def _notices_of_roles(placement: Placement) -> list[Notice]:
    names = placement.controller_listener_names
    if placement.is_controller or len(names) == 1:
        return []
    key = "controller.listener.names"
    message = (
        f"{key} has multiple entries; only the first will be used since process.roles=broker: "
        f"{', '.join(names)}"
    )
    return [Notice(NoticeLevel.WARNING, key, message)]


def _notices_of_times(values: ConfigValues) -> list[Notice]:
    heartbeat, session = "broker.heartbeat.interval.ms", "broker.session.timeout.ms"
    if 2 * values.get_int(heartbeat) <= values.get_int(session):
        return []
    message = (
        f"{heartbeat} ({values[heartbeat]} ms) must be less than or equal to half of the "
        f"{session} ({values[session]} ms): a broker that sends no heartbeat within that time is "
        f"fenced. Increase {session} or decrease {heartbeat}"
    )
    return [Notice(NoticeLevel.WARNING, heartbeat, message)]


def base_name(name: str) -> str:
    """Return the config that ``listener.name.<listener>.<config>`` sets for one listener.

    A SASL mechanism may come before the config, with that prefix or alone. Any other name stands
    for itself.
    """
    mechanism, _, of_mechanism = name.partition(".")
    if mechanism in _MECHANISMS and of_mechanism in BROKER_CONFIGS:
        return of_mechanism
    if name.startswith(_LISTENER_PREFIX):
        _, _, rest = name.removeprefix(_LISTENER_PREFIX).partition(".")
        _, _, after_mechanism = rest.partition(".")
        for base in (rest, after_mechanism):
            if base in BROKER_CONFIGS:
                return base
    return name


def _is_known(name: str) -> bool:
    return base_name(name) in BROKER_CONFIGS or name.startswith(_PLUGIN_PREFIXES)


def _checked(values: ConfigValues, texts: Mapping[str, str]) -> BrokerConfig:
    check_numbers(values)
    _check_consumer_groups(values)
    placement = place(values.get_int("node.id"), values, texts)
    config = BrokerConfig(values, MappingProxyType(dict(texts)), placement)
    # Parsed when they are asked for; what is wrong with them is told now.
    _ = config.metrics_listener, authorizer_settings(config)
    return config


def check_numbers(values: Mapping[str, ConfigValue]) -> None:
    """Run Kafka's checks that go beyond the limits in the table."""
    for name, least in _LEAST.items():
        value = values.get(name)
        if isinstance(value, int) and value < least:
            raise _refusal(f"{name} must be greater than or equal to {least}, and it is {value}")
    pool, largest = values.get("queued.max.request.bytes"), values.get("socket.request.max.bytes")
    if isinstance(pool, int) and isinstance(largest, int) and 0 < pool < largest:
        raise _refusal(
            "queued.max.request.bytes must be greater than or equal to socket.request.max.bytes "
            f"({largest}), or -1 for no limit, and it is {pool}"
        )
    times = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
    deciding = next((name for name in times if values.get(name) is not None), None)
    if deciding is not None and values[deciding] == 0:
        raise _refusal(
            f"{deciding} must be unlimited (-1) or, greater than or equal to 1, and it is 0"
        )
    if values.get("max.connections.per.ip") == 0:
        raise _refusal(
            "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides "
            "property is set, and that has no effect in dohle."
        )
    low, high = (values.get(f"log.cleaner.{which}.compaction.lag.ms") for which in ("min", "max"))
    if isinstance(low, int) and isinstance(high, int) and low > high:
        raise _refusal(
            "conflict topic config setting log.cleaner.min.compaction.lag.ms "
            f"({low}) > log.cleaner.max.compaction.lag.ms ({high})"
        )


def _check_consumer_groups(values: ConfigValues) -> None:
    """Check that the intervals of consumer groups are within their limits and consistent."""
    prefix = "group.consumer"
    pairs = []
    for time in ("heartbeat.interval.ms", "session.timeout.ms"):
        least, given, most = f"{prefix}.min.{time}", f"{prefix}.{time}", f"{prefix}.max.{time}"
        pairs += [(least, most), (least, given), (given, most)]
    for low, high in pairs:
        if values.get_int(low) > values.get_int(high):
            raise _refusal(
                f"{high} must be greater than or equal to {low}, and it is {values[high]}, below "
                f"{values[low]}"
            )
    heartbeat, session = f"{prefix}.heartbeat.interval.ms", f"{prefix}.session.timeout.ms"
    if values.get_int(heartbeat) >= values.get_int(session):
        raise _refusal(
            f"{heartbeat} must be less than {session}, and they are {values[heartbeat]} and "
            f"{values[session]}"
        )


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
