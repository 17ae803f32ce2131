"""The options of a read: which there are, what they mean, and what is said of wrong ones."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.types import StructType

from dohle.client import At, Beginning, End, IsolationLevel, Since
from dohle.core.ids import TopicName, TopicPartition
from dohle.security.jaas import jaas_text
from dohle.spark.options import (
    CLIENT_OPTIONS,
    CONSUMER_OPTIONS,
    REFUSED,
    SOURCE_OPTIONS,
    WITHOUT_EFFECT,
    OptionError,
    client_config,
)
from dohle.spark.source.options import (
    Assign,
    Places,
    Query,
    SourceOptions,
    Subscribe,
    SubscribePattern,
    parse_source_options,
)
from pyspark_dohle import DefaultSource

BOOTSTRAP = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def _partition(topic: str, number: int) -> TopicPartition:
    return TopicPartition(TopicName(topic), number)


def _parse(query: Query = Query.BATCH, /, **options: str) -> SourceOptions:
    named = {name.replace("__", "."): value for name, value in options.items()}
    chosen = {} if {"assign", "subscribePattern"} & named.keys() else {"subscribe": "t"}
    return parse_source_options({**BOOTSTRAP, **chosen, **named}, query)


def _message(query: Query = Query.BATCH, /, **options: str) -> str:
    with pytest.raises(OptionError) as caught:
        _parse(query, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("startingOffset", "startingOffsets"),
        ("subscribe_pattern", "subscribePattern"),
        ("topic", "subscribe"),
        ("failOnDataLost", "failOnDataLoss"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("kafka.bootstrap.server", "kafka.bootstrap.servers"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
        ("group.id", "kafka.group.id"),
        ("kafka.isolation_level", "kafka.isolation.level"),
        ("kafka.max.poll.record", "kafka.max.poll.records"),
    ],
)
def test_a_wrong_name_is_told_with_the_nearest_right_one(wrong: str, right: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_source_options({**BOOTSTRAP, wrong: "x"}, Query.BATCH)

    assert right in str(caught.value)


def test_a_name_like_no_other_is_told_with_all_there_are() -> None:
    message = _message(zzz="1")

    assert all(option.name in message for option in SOURCE_OPTIONS)


def test_every_option_has_a_meaning_and_a_name_of_its_own() -> None:
    options = (*SOURCE_OPTIONS, *CLIENT_OPTIONS, *CONSUMER_OPTIONS)
    names = [option.name.lower() for option in options]

    assert all(option.meaning for option in options)
    assert len(set(names)) == len(names)
    assert not WITHOUT_EFFECT & set(names)
    assert not REFUSED.keys() & set(names)


def test_names_are_told_apart_without_regard_to_case() -> None:
    parsed = parse_source_options(
        {"KAFKA.bootstrap.SERVERS": "a:1", "SUBSCRIBE": "t", "STARTINGOFFSETS": "Earliest"},
        Query.STREAMING,
    )

    assert parsed.starting == Places("startingOffsets", Beginning())


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_the_source_decides_itself_cannot_be_set(name: str) -> None:
    assert REFUSED[name] in _message(**{name: "x"})


@pytest.mark.parametrize("name", sorted(WITHOUT_EFFECT))
def test_settings_of_a_consumer_that_mean_nothing_here_are_accepted(name: str) -> None:
    assert _parse(**{name: "1"}) == _parse()


def test_security_reaches_the_client_and_other_processes() -> None:
    parsed = _parse(
        kafka__security__protocol="SASL_SSL",
        kafka__sasl__mechanism="SCRAM-SHA-512",
        **{"kafka.sasl.jaas.config": jaas_text("SCRAM-SHA-512", "alice", "alice-secret")},
    )
    sent = pickle.loads(pickle.dumps(parsed))
    assert sent.client.security == parsed.client.security
    assert sent.client.security.account.user == "alice"
    assert sent.client.security.context is not None
    assert "alice-secret" not in repr(sent)


def test_security_that_cannot_be_used_is_refused() -> None:
    assert "GSSAPI" in _message(kafka__security__protocol="SASL_SSL")
    assert "kafka.sasl.mechanism" in _message(kafka__sasl__mechanismus="PLAIN")
    assert _parse(kafka__security__protocol="PLAINTEXT", kafka__sasl__mechanism="PLAIN") == _parse()


def test_brokers_must_be_named() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing"):
        parse_source_options({"subscribe": "t"}, Query.BATCH)
    assert "port" in _message(**{"kafka.bootstrap.servers": "host:none"})


def test_kafka_settings_reach_the_client() -> None:
    config = client_config(
        {
            "kafka.client.id": "me",
            "kafka.request.timeout.ms": "1",
            "kafka.default.api.timeout.ms": "2",
            "kafka.socket.connection.setup.timeout.ms": "3",
            "kafka.retry.backoff.ms": "4",
            "kafka.retry.backoff.max.ms": "5",
            "kafka.metadata.max.age.ms": "6",
        }
    )

    assert config.client_id == "me"
    assert (config.request_timeout_ms, config.api_timeout_ms) == (1, 2)
    assert config.socket_connection_setup_timeout_ms == 3
    assert (config.retry_backoff_ms, config.retry_backoff_max_ms) == (4, 5)
    assert config.metadata_max_age_ms == 6


def test_topics_are_named_matched_or_their_partitions_assigned() -> None:
    named = _parse(subscribe=" a, b,a").subscription
    assigned = _parse(assign='{"a": [1, 0], "b": [2]}').subscription

    assert named == Subscribe((TopicName("a"), TopicName("b")))
    assert _parse(subscribePattern="a.*").subscription == SubscribePattern("a.*")
    assert assigned == Assign((_partition("a", 1), _partition("a", 0), _partition("b", 2)))


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "a", "subscribePattern": "b"},
        {"assign": "{}"},
        {"assign": "[1]"},
        {"assign": '{"a": "0"}'},
        {"assign": '{"a": [-1]}'},
        {"assign": '{"a": [true]}'},
        {"assign": "a"},
        {"subscribe": ""},
        {"subscribe": "a,,b"},
        {"subscribePattern": "("},
        {"subscribePattern": ""},
    ],
)
def test_a_subscription_that_cannot_be_read_is_refused(options: dict[str, str]) -> None:
    assert "subscribe" in _message(**options) or "assign" in _message(**options)


def test_no_subscription_is_told_with_the_ways_to_make_one() -> None:
    with pytest.raises(OptionError, match="subscribe, subscribePattern, assign"):
        parse_source_options(BOOTSTRAP, Query.BATCH)


def test_a_batch_begins_at_the_beginning_and_a_stream_at_the_end() -> None:
    assert _parse().starting == Places("startingOffsets", Beginning())
    assert _parse().ending == Places("endingOffsets", End())
    assert _parse(Query.STREAMING).starting == Places("startingOffsets", End())


def test_offsets_are_named_for_each_partition() -> None:
    parsed = _parse(
        startingOffsets='{"t": {"0": 23, "1": -2}}', endingOffsets='{"t": {"0": 50, "1": -1}}'
    )

    assert parsed.starting.each == {_partition("t", 0): At(23), _partition("t", 1): Beginning()}
    assert parsed.ending.each == {_partition("t", 0): At(50), _partition("t", 1): End()}


def test_one_time_counts_above_times_and_times_above_offsets() -> None:
    offsets = {"startingOffsets": "earliest", "endingOffsets": "latest"}
    times = {
        "startingOffsetsByTimestamp": '{"t": {"0": 7}}',
        "endingOffsetsByTimestamp": '{"t": {"0": 8}}',
    }
    each = _parse(**offsets, **times)
    one = _parse(**offsets, **times, startingTimestamp="5", endingTimestamp="6")

    assert each.starting.each == {_partition("t", 0): Since(7)}
    assert each.ending.each == {_partition("t", 0): Since(8)}
    assert (one.starting.everywhere, one.ending.everywhere) == (Since(5), Since(6))


@pytest.mark.parametrize(
    ("query", "options"),
    [
        (Query.BATCH, {"startingOffsets": "latest"}),
        (Query.BATCH, {"startingOffsets": '{"t": {"0": -1}}'}),
        (Query.BATCH, {"endingOffsets": "earliest"}),
        (Query.BATCH, {"endingOffsets": '{"t": {"0": -2}}'}),
        (Query.STREAMING, {"endingOffsets": "latest"}),
        (Query.STREAMING, {"endingTimestamp": "1"}),
        (Query.STREAMING, {"endingOffsetsByTimestamp": '{"t": {"0": 1}}'}),
        (Query.BATCH, {"startingOffsets": "begin"}),
        (Query.BATCH, {"startingOffsets": "{}"}),
        (Query.BATCH, {"startingOffsets": '{"t": {"0": -3}}'}),
        (Query.BATCH, {"startingOffsets": '{"t": {"x": 1}}'}),
        (Query.BATCH, {"startingOffsets": '{"t": [1]}'}),
        (Query.BATCH, {"startingOffsets": '{"t": {"0": "1"}}'}),
        (Query.BATCH, {"startingOffsetsByTimestamp": '{"t": {"0": -1}}'}),
        (Query.BATCH, {"startingTimestamp": "yesterday"}),
        (Query.BATCH, {"startingTimestamp": "-1"}),
        (Query.BATCH, {"startingOffsetsByTimestampStrategy": "earliest"}),
        (Query.BATCH, {"failOnDataLoss": "maybe"}),
        (Query.BATCH, {"includeHeaders": "yes"}),
        (Query.BATCH, {"minPartitions": "0"}),
        (Query.BATCH, {"maxRecordsPerPartition": "many"}),
        (Query.STREAMING, {"maxOffsetsPerTrigger": "0"}),
        (Query.STREAMING, {"minOffsetsPerTrigger": "-5"}),
        (Query.STREAMING, {"maxTriggerDelay": "soon"}),
        (Query.STREAMING, {"maxTriggerDelay": "5 weeks"}),
        (Query.BATCH, {"isolation.level": "serializable"}),
        (Query.BATCH, {"kafka.fetch.max.bytes": "0"}),
        (Query.BATCH, {"kafka.request.timeout.ms": "long"}),
    ],
)
def test_a_value_that_an_option_cannot_have_is_refused_by_its_name(
    query: Query, options: dict[str, str]
) -> None:
    assert next(iter(options)).removeprefix("kafka.") in _message(query, **options)


def test_the_least_of_a_batch_cannot_be_more_than_the_most() -> None:
    message = _message(Query.STREAMING, minOffsetsPerTrigger="5", maxOffsetsPerTrigger="4")

    assert "minOffsetsPerTrigger" in message
    assert "maxOffsetsPerTrigger" in message


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("15m", 900_000),
        ("90s", 90_000),
        ("250 ms", 250),
        ("2h", 7_200_000),
        ("7", 7),
        ("1d", 8.64e7),
    ],
)
def test_times_have_units(text: str, expected_ms: int) -> None:
    assert _parse(Query.STREAMING, maxTriggerDelay=text).trigger_delay_ms_max == expected_ms


def test_the_isolation_level_has_two_names_that_must_agree() -> None:
    committed = IsolationLevel.READ_COMMITTED

    assert _parse().isolation_level is IsolationLevel.READ_UNCOMMITTED
    assert _parse(isolation__level="read_committed").isolation_level is committed
    assert _parse(kafka__isolation__level="read_committed").isolation_level is committed
    assert "differ" in _message(
        isolation__level="read_committed", kafka__isolation__level="read_uncommitted"
    )


def test_all_that_limits_and_tunes_a_read_is_taken() -> None:
    parsed = _parse(
        Query.STREAMING,
        failOnDataLoss="false",
        includeHeaders="true",
        maxOffsetsPerTrigger="10",
        minOffsetsPerTrigger="5",
        minPartitions="3",
        maxRecordsPerPartition="4",
        startingOffsetsByTimestampStrategy="latest",
        groupIdPrefix="prefix",
        kafkaConsumer__pollTimeoutMs="100",
        fetchOffset__numRetries="7",
        fetchOffset__retryIntervalMs="8",
        kafka__group__id="g",
        kafka__max__partition__fetch__bytes="1000",
        kafka__fetch__max__bytes="900",
        kafka__fetch__max__wait__ms="11",
        kafka__fetch__min__bytes="12",
    )

    assert not parsed.fail_on_data_loss
    assert parsed.include_headers
    assert parsed.latest_if_none_so_late
    assert (parsed.offsets_per_trigger_max, parsed.offsets_per_trigger_min) == (10, 5)
    assert (parsed.partitions_min, parsed.records_per_partition_max) == (3, 4)
    assert parsed.poll_timeout_ms == 100
    assert (parsed.offset_lookup_retries, parsed.offset_lookup_retry_interval_ms) == (7, 8)
    assert parsed.group_id == "g"
    assert (parsed.fetch_bytes_max, parsed.fetch_max_wait_ms, parsed.fetch_min_bytes) == (
        900,
        11,
        12,
    )


def test_a_mode_that_would_remove_what_is_in_a_topic_is_refused() -> None:
    source = DefaultSource({"kafka.bootstrap.servers": "127.0.0.1:9", "topic": "t"})
    schema = StructType().add("value", "string")
    with pytest.raises(OptionError, match="not overwritten"):
        source.writer(schema, overwrite=True)
    source.writer(schema, overwrite=False)
