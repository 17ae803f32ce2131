"""The options of a read: which partitions, from where to where, and how.

Timestamps take precedence over offsets, and one timestamp for all over one for each, as in Spark's
Kafka source. Everything that can be checked without a broker is checked here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from dohle.client import At, Beginning, ClientConfig, End, IsolationLevel, Since
from dohle.core.ids import TopicName, TopicPartition
from dohle.spark.options import (
    CLIENT_OPTIONS,
    CONSUMER_OPTIONS,
    SOURCE_OPTIONS,
    OptionError,
    Options,
    bootstrap_servers,
    check_names,
    client_config,
    duration_ms,
    one_of,
    truth,
    whole_number,
)

_EARLIEST_OFFSET, _LATEST_OFFSET = -2, -1
_FETCH_BYTES = 8 * 1024 * 1024


class Query(Enum):
    """The two kinds of reads."""

    BATCH = "batch"
    STREAMING = "streaming"


@dataclass(frozen=True, slots=True)
class Subscribe:
    """All partitions of these topics."""

    topics: tuple[TopicName, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """All partitions of the topics whose whole name matches."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Assign:
    """These partitions."""

    partitions: tuple[TopicPartition, ...]


Subscription = Subscribe | SubscribePattern | Assign

#: A place in a partition.
Place = Beginning | End | At | Since


@dataclass(frozen=True, slots=True)
class Places:
    """Where to start or to end: the same for all partitions, or a position for each."""

    option: str
    everywhere: Place | None = None
    each: Mapping[TopicPartition, Place] | None = None

    def behind(self, latest: Mapping[TopicPartition, int]) -> tuple[str, ...]:
        """Name the offsets that are past the end of their partitions: nothing was ever there."""
        return tuple(
            f"option {self.option} names offset {place.offset} of {partition}, which ends at "
            f"{latest[partition]}"
            for partition, place in (self.each or {}).items()
            if isinstance(place, At) and partition in latest and place.offset > latest[partition]
        )


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All options of a read."""

    bootstrap: str
    client: ClientConfig
    subscription: Subscription
    starting: Places
    ending: Places
    latest_if_none_so_late: bool
    fail_on_data_loss: bool
    include_headers: bool
    isolation_level: IsolationLevel
    group_id: str | None
    offsets_per_trigger_max: int | None
    offsets_per_trigger_min: int | None
    trigger_delay_ms_max: int
    partitions_min: int | None
    records_per_partition_max: int | None
    poll_timeout_ms: int
    offset_lookup_retries: int
    offset_lookup_retry_interval_ms: int
    fetch_bytes_max: int
    fetch_max_wait_ms: int
    fetch_min_bytes: int


def parse_source_options(options: Options, query: Query) -> SourceOptions:
    """Parse the options of a query, or raise :class:`OptionError`."""
    options = {name.lower(): value for name, value in options.items()}
    check_source_names(options)
    client = client_config(options)
    at_most, at_least = "maxOffsetsPerTrigger", "minOffsetsPerTrigger"
    most, fewest = _limit(options, at_most), _limit(options, at_least)
    if most is not None and fewest is not None and fewest > most:
        raise OptionError(f"option {at_least} is {fewest}, more than {at_most}, which is {most}")
    fetch_bytes = whole_number(options, "kafka.max.partition.fetch.bytes", _FETCH_BYTES, least=1)
    strategies = ("error", "latest")
    strategy = one_of(options, "startingOffsetsByTimestampStrategy", strategies, "error")
    return SourceOptions(
        bootstrap=bootstrap_servers(options),
        client=client,
        subscription=_subscription(options),
        starting=_starting(options, query),
        ending=_ending(options, query),
        latest_if_none_so_late=strategy == "latest",
        fail_on_data_loss=truth(options, "failOnDataLoss", otherwise=True),
        include_headers=truth(options, "includeHeaders", otherwise=False),
        isolation_level=_isolation_level(options),
        group_id=options.get("kafka.group.id") or None,
        offsets_per_trigger_max=most,
        offsets_per_trigger_min=fewest,
        trigger_delay_ms_max=duration_ms(options, "maxTriggerDelay", "15m"),
        partitions_min=_limit(options, "minPartitions"),
        records_per_partition_max=_limit(options, "maxRecordsPerPartition"),
        poll_timeout_ms=whole_number(options, "kafkaConsumer.pollTimeoutMs", 120_000, least=1),
        offset_lookup_retries=whole_number(options, "fetchOffset.numRetries", 3),
        offset_lookup_retry_interval_ms=whole_number(options, "fetchOffset.retryIntervalMs", 10),
        fetch_bytes_max=min(
            fetch_bytes, whole_number(options, "kafka.fetch.max.bytes", 52_428_800, least=1)
        ),
        fetch_max_wait_ms=whole_number(options, "kafka.fetch.max.wait.ms", 500),
        fetch_min_bytes=whole_number(options, "kafka.fetch.min.bytes", 1),
    )


def check_source_names(options: Options) -> None:
    """Raise :class:`OptionError` for an option that a read does not have."""
    check_names(options, (*SOURCE_OPTIONS, *CLIENT_OPTIONS, *CONSUMER_OPTIONS))


def wants_headers(options: Options) -> bool:
    """Tell whether there is a column of headers, regardless of other options."""
    return truth(options, "includeHeaders", otherwise=False)


def _limit(options: Options, name: str) -> int | None:
    return whole_number(options, name, 0, least=1) if name.lower() in options else None


def _isolation_level(options: Options) -> IsolationLevel:
    names = {"read_uncommitted": 0, "read_committed": 1}
    short, long = "isolation.level", "kafka.isolation.level"
    if short in options and options[short] != options.get(long, options[short]):
        raise OptionError(f"options {short} and {long} differ: set one of them")
    name = short if short in options else long
    return IsolationLevel(names[one_of(options, name, names, "read_uncommitted")])


def _subscription(options: Options) -> Subscription:
    names = ("subscribe", "subscribePattern", "assign")
    given = [name for name in names if name.lower() in options]
    if len(given) != 1:
        said = f"{' and '.join(given)} are set" if given else "none is set"
        raise OptionError(f"one of the options {', '.join(names)} is needed: {said}")
    name = given[0]
    text = options[name.lower()].strip()
    if name == "subscribe":
        topics = tuple(dict.fromkeys(TopicName(each.strip()) for each in text.split(",")))
        if not all(topics):
            raise OptionError(f"option subscribe is {text!r}: names of topics, with commas between")
        return Subscribe(topics)
    if name == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"option subscribePattern is {text!r}: {error}") from None
        if not text:
            raise OptionError("option subscribePattern is empty")
        return SubscribePattern(text)
    return Assign(_assigned(text))


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    wrong = OptionError(f'option assign is {text!r}: it must be JSON like {{"topic": [0, 1]}}')
    found = _json(text, wrong)
    partitions: list[TopicPartition] = []
    for topic, numbers in found.items():
        if not isinstance(numbers, list):
            raise wrong
        for number in numbers:
            if type(number) is not int or number < 0:
                raise wrong
            partitions.append(TopicPartition(TopicName(topic), number))
    if not partitions:
        raise wrong
    return tuple(dict.fromkeys(partitions))


def _starting(options: Options, query: Query) -> Places:
    found = _by_timestamp(options, "startingTimestamp", "startingOffsetsByTimestamp")
    if found is not None:
        return found
    name = "startingOffsets"
    default = "earliest" if query is Query.BATCH else "latest"
    places = _by_offset(options, name, default)
    if query is Query.BATCH and End() in (places.everywhere, *(places.each or {}).values()):
        raise OptionError(f"option {name}: a batch query cannot begin at latest (-1)")
    return places


def _ending(options: Options, query: Query) -> Places:
    names = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
    if query is Query.STREAMING:
        for name in names:
            if name.lower() in options:
                raise OptionError(f"option {name} is for batch queries: a stream has no end")
    found = _by_timestamp(options, names[0], names[1])
    if found is not None:
        return found
    places = _by_offset(options, names[2], "latest")
    if Beginning() in (places.everywhere, *(places.each or {}).values()):
        raise OptionError(f"option {names[2]}: a query cannot end at earliest (-2)")
    return places


def _by_timestamp(options: Options, everywhere: str, each: str) -> Places | None:
    if everywhere.lower() in options:
        return Places(everywhere, Since(whole_number(options, everywhere, 0)))
    text = options.get(each.lower())
    if text is None:
        return None
    numbers = _numbers(each, text, least=0)
    return Places(each, each={partition: Since(time) for partition, time in numbers.items()})


def _by_offset(options: Options, name: str, default: str) -> Places:
    text = options.get(name.lower(), default).strip()
    if text.lower() == "earliest":
        return Places(name, Beginning())
    if text.lower() == "latest":
        return Places(name, End())
    special: dict[int, Place] = {_EARLIEST_OFFSET: Beginning(), _LATEST_OFFSET: End()}
    numbers = _numbers(name, text, least=_EARLIEST_OFFSET)
    return Places(
        name,
        each={
            partition: special[offset] if offset in special else At(offset)
            for partition, offset in numbers.items()
        },
    )


def _numbers(name: str, text: str, *, least: int) -> dict[TopicPartition, int]:
    """Read ``{"topic": {"0": 23}}``."""
    wrong = OptionError(f'option {name} is {text!r}: it must be JSON like {{"topic": {{"0": 23}}}}')
    numbers: dict[TopicPartition, int] = {}
    for topic, of_topic in _json(text, wrong).items():
        if not isinstance(of_topic, dict):
            raise wrong
        for partition, number in of_topic.items():
            if not partition.isdecimal() or type(number) is not int or number < least:
                raise wrong
            numbers[TopicPartition(TopicName(topic), int(partition))] = number
    if not numbers:
        raise wrong
    return numbers


def _json(text: str, wrong: OptionError) -> dict[str, object]:
    try:
        found = json.loads(text)
    except ValueError:
        raise wrong from None
    if not isinstance(found, dict):
        raise wrong
    return found
