"""The options of ``format("dohle")``: those of Spark's own Kafka source, under the same names.

One table lists them with their meaning; names are case-insensitive, as in Spark. An unknown name is
refused, with the nearest known one: a mistyped option without effect costs hours. ``kafka.``
options are settings of a Kafka client; those that our client has are applied, others are accepted
without effect, and those on whose effect a user must rely are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from dohle.client import ClientConfig
from dohle.client.net.addresses import parse_bootstrap
from dohle.client.settings.security import known_names, security_of
from dohle.core.errors import KafkaError
from dohle.security.client import ClientSecurity

#: Names are lower-case: Spark passes them like that.
Options = Mapping[str, str]

BOOTSTRAP_SERVERS = "kafka.bootstrap.servers"


class OptionError(ValueError):
    """An option that is missing, unknown, or has an invalid value."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option: its name as it is documented, and what it means."""

    name: str
    meaning: str


SOURCE_OPTIONS = (
    Option("subscribe", "topics to read, with commas between them"),
    Option("subscribePattern", "a regular expression for the names of the topics to read"),
    Option("assign", 'partitions to read: {"topic": [0, 1]}'),
    Option("startingOffsets", 'earliest, latest or {"topic": {"0": 23, "1": -2}}'),
    Option("endingOffsets", 'where a batch query ends: latest or {"topic": {"0": 50, "1": -1}}'),
    Option("startingTimestamp", "begin with the first record of this time (ms) or later"),
    Option("endingTimestamp", "end a batch query before the first record of this time (ms)"),
    Option("startingOffsetsByTimestamp", 'starting times: {"topic": {"0": 1700000000000}}'),
    Option("endingOffsetsByTimestamp", 'ending times: {"topic": {"0": 1700000000000}}'),
    Option("startingOffsetsByTimestampStrategy", "error or latest, if no record is that late"),
    Option("failOnDataLoss", "whether records that are gone fail the query (true) or are told of"),
    Option("maxOffsetsPerTrigger", "how many offsets a micro-batch has at most"),
    Option("minOffsetsPerTrigger", "how many offsets a micro-batch waits for"),
    Option("maxTriggerDelay", "how long it waits for them: 15m by default"),
    Option("minPartitions", "split large ranges of offsets so that there are as many tasks"),
    Option("maxRecordsPerPartition", "split ranges of more offsets over several tasks"),
    Option("includeHeaders", "whether there is a column of headers"),
    Option("isolation.level", "read_uncommitted or read_committed, as kafka.isolation.level"),
    Option("groupIdPrefix", "without effect: no group is joined"),
    Option("kafkaConsumer.pollTimeoutMs", "how long a task waits for a leader to have its records"),
    Option("fetchOffset.numRetries", "how often looking up offsets is tried again"),
    Option("fetchOffset.retryIntervalMs", "how long it waits before that"),
)

CLIENT_OPTIONS = (
    Option(BOOTSTRAP_SERVERS, "brokers to connect to first: host:port, with commas between them"),
    Option("kafka.client.id", "the name that brokers see and log"),
    Option("kafka.request.timeout.ms", "how long to wait for an answer"),
    Option("kafka.default.api.timeout.ms", "how long an operation may take, its retries included"),
    Option("kafka.socket.connection.setup.timeout.ms", "how long connecting may take"),
    Option("kafka.retry.backoff.ms", "the pause before the first retry"),
    Option("kafka.retry.backoff.max.ms", "the longest pause between retries"),
    Option("kafka.metadata.max.age.ms", "how old knowledge of leaders may be"),
    Option("kafka.security.protocol", "PLAINTEXT; others are not supported yet"),
)

CONSUMER_OPTIONS = (
    Option("kafka.group.id", "the group under which progress is committed after each batch"),
    Option("kafka.isolation.level", "read_uncommitted or read_committed"),
    Option("kafka.max.partition.fetch.bytes", "how much one fetch asks for"),
    Option("kafka.fetch.max.bytes", "how much one fetch asks for at most"),
    Option("kafka.fetch.max.wait.ms", "how long a leader waits for records to be there"),
    Option("kafka.fetch.min.bytes", "how much a leader waits for"),
)

#: Settings of Kafka's consumer without effect here: about polling and groups.
WITHOUT_EFFECT = frozenset(
    f"kafka.{name}"
    for name in (
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "auto.include.jmx.reporter",
        "check.crcs",
        "client.dns.lookup",
        "client.rack",
        "config.providers",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "exclude.internal.topics",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partition.assignment.strategy",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "send.buffer.bytes",
        "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
    )
)

#: Options that Spark's Kafka source refuses as well, and why.
REFUSED = {
    "kafka.auto.offset.reset": "where to begin is said by startingOffsets, and what happens to "
    "offsets that are gone by failOnDataLoss",
    "kafka.key.deserializer": "keys are read as bytes: use DataFrame operations on the column",
    "kafka.value.deserializer": "values are read as bytes: use DataFrame operations on the column",
    "kafka.enable.auto.commit": "progress is kept in the checkpoint and, with kafka.group.id, "
    "committed after each batch",
    "kafka.interceptor.classes": "records are not read by a consumer that could have interceptors",
}

_SECURITY = ("kafka.sasl.", "kafka.ssl.", "kafka.security.")


def check_names(options: Options, known: Iterable[Option]) -> None:
    """Refuse a name that is neither known nor one of Kafka's own without effect here."""
    names = {option.name.lower(): option.name for option in known}
    for given in options:
        name = given.lower()
        if name in REFUSED:
            raise OptionError(f"option {name} cannot be set: {REFUSED[name]}")
        if name in names or name in WITHOUT_EFFECT or name.startswith(_SECURITY):
            continue
        close = get_close_matches(name, [*names, *WITHOUT_EFFECT], n=1, cutoff=0.5)
        if close:
            hint = f"did you mean {names.get(close[0], close[0])}?"
        else:
            hint = f"there are {', '.join(sorted(names.values(), key=str.lower))}"
        raise OptionError(f"option {given} is unknown: {hint}")


def bootstrap_servers(options: Options) -> str:
    """Return the bootstrap servers."""
    servers = options.get(BOOTSTRAP_SERVERS)
    if servers is None:
        raise OptionError(f"option {BOOTSTRAP_SERVERS} is missing: set it to host:port of a broker")
    try:
        parse_bootstrap(servers)
    except ValueError as error:
        raise OptionError(f"option {BOOTSTRAP_SERVERS}: {error}") from None
    return servers


def client_config(options: Options) -> ClientConfig:
    """Return the client settings of the ``kafka.`` options."""
    default = ClientConfig()

    def milliseconds(name: str, otherwise: int) -> int:
        return whole_number(options, f"kafka.{name}", otherwise, least=1)

    return ClientConfig(
        client_id=options.get("kafka.client.id", "dohle-spark"),
        security=_security(options),
        request_timeout_ms=milliseconds("request.timeout.ms", default.request_timeout_ms),
        api_timeout_ms=milliseconds("default.api.timeout.ms", default.api_timeout_ms),
        socket_connection_setup_timeout_ms=milliseconds(
            "socket.connection.setup.timeout.ms", default.socket_connection_setup_timeout_ms
        ),
        retry_backoff_ms=milliseconds("retry.backoff.ms", default.retry_backoff_ms),
        retry_backoff_max_ms=milliseconds("retry.backoff.max.ms", default.retry_backoff_max_ms),
        metadata_max_age_ms=milliseconds("metadata.max.age.ms", default.metadata_max_age_ms),
    )


def _security(options: Options) -> ClientSecurity:
    """Return whom the client trusts and who it is: Kafka's configs behind ``kafka.``."""
    given = {
        name.lower().removeprefix("kafka."): value
        for name, value in options.items()
        if name.lower().startswith(_SECURITY)
    }
    known = known_names()
    for name in given:
        if name not in known:
            close = get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f": did you mean kafka.{close[0]}?" if close else ""
            raise OptionError(f"option kafka.{name} is unknown{hint}")
    try:
        return security_of(given)
    except KafkaError as error:
        raise OptionError(f"options kafka.security, sasl, ssl: {error.args[0]}") from None


def whole_number(options: Options, name: str, otherwise: int, *, least: int = 0) -> int:
    """Return an option that is an integer, or the default if it is not given."""
    text = options.get(name.lower())
    if text is None:
        return otherwise
    try:
        number = int(text)
    except ValueError:
        raise OptionError(f"option {name} is {text!r}: it must be a whole number") from None
    if number < least:
        raise OptionError(f"option {name} is {number}: it must be at least {least}")
    return number


def truth(options: Options, name: str, *, otherwise: bool) -> bool:
    """Return an option that is true or false."""
    text = options.get(name.lower())
    if text is None:
        return otherwise
    if text.strip().lower() not in ("true", "false"):
        raise OptionError(f"option {name} is {text!r}: it must be true or false")
    return text.strip().lower() == "true"


def one_of(options: Options, name: str, choices: Iterable[str], otherwise: str) -> str:
    """Return an option that is one of several words."""
    text = options.get(name.lower(), otherwise).strip().lower()
    allowed = tuple(choices)
    if text not in allowed:
        raise OptionError(f"option {name} is {text!r}: it must be {' or '.join(allowed)}")
    return text


_DURATION = re.compile(r"(-?\d+)\s*([a-z]*)")
_UNITS_MS = {
    "": 1.0,
    "us": 0.001,
    "ms": 1.0,
    "s": 1000.0,
    "m": 60_000.0,
    "min": 60_000.0,
    "h": 3_600_000.0,
    "d": 86_400_000.0,
}


def duration_ms(options: Options, name: str, otherwise: str) -> int:
    """Return an option that is a time with a unit (``90s``, ``15m``), in milliseconds."""
    text = options.get(name.lower(), otherwise)
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or match[2] not in _UNITS_MS or int(match[1]) < 0:
        units = ", ".join(unit for unit in _UNITS_MS if unit)
        raise OptionError(f"option {name} is {text!r}: it must be a number and one of {units}")
    return int(int(match[1]) * _UNITS_MS[match[2]])
