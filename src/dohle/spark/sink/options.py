"""The options of a write: target, delivery guarantee, and producer settings.

Names are those of Spark's own Kafka sink; additional ones are below. ``kafka.`` options are
settings of Kafka's producer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dohle.client import ClientConfig, ProducerConfig
from dohle.records.compression.codecs import Codec
from dohle.spark.options import (
    CLIENT_OPTIONS,
    Option,
    OptionError,
    Options,
    bootstrap_servers,
    check_names,
    client_config,
    one_of,
    truth,
    whole_number,
)

COMMITS_TOPIC = "__dohle_spark_commits"
TRANSACTIONAL_ID_PREFIX = "dohle-spark"

SINK_OPTIONS = (
    Option("topic", "the topic of all rows, whatever their column topic says"),
    Option("delivery", "exactly-once or at-least-once"),
    Option("failOnDataLoss", "whether rows of a decided batch that are lost fail the query (true)"),
    Option("includeHeaders", "without effect: a column of headers is always written"),
    Option("commitsTopic", f"where it is kept what queries have written: {COMMITS_TOPIC}"),
    Option("transactionalIdPrefix", "what transactional ids begin with"),
)

PRODUCER_OPTIONS = (
    Option("kafka.acks", "all"),
    Option("kafka.batch.size", "bytes of records that are sent as one batch"),
    Option("kafka.buffer.memory", "bytes of records that may wait to be sent"),
    Option("kafka.compression.type", "none, gzip, snappy, lz4 or zstd"),
    Option("kafka.compression.gzip.level", "how hard gzip tries"),
    Option("kafka.compression.lz4.level", "how hard lz4 tries"),
    Option("kafka.compression.zstd.level", "how hard zstd tries"),
    Option("kafka.delivery.timeout.ms", "how long sending may take, retries included"),
    Option("kafka.linger.ms", "without effect: batches are full, or the last ones"),
    Option("kafka.max.block.ms", "how long to wait for metadata, and for a transaction's end"),
    Option("kafka.max.in.flight.requests.per.connection", "requests that wait for answers"),
    Option("kafka.max.request.size", "bytes of one request"),
    Option("kafka.transaction.timeout.ms", "how long a transaction may be open"),
)

#: Options that Spark itself adds to a sink.
_SPARK_OPTIONS = tuple(
    Option(name, "Spark's own") for name in ("checkpointLocation", "queryName", "path")
)
_REFUSED = {
    "kafka.key.serializer": "keys are written as they are: use DataFrame operations on the column",
    "kafka.value.serializer": "values are written as they are: use DataFrame operations",
    "kafka.transactional.id": "ids are made of transactionalIdPrefix, the query and the task",
    "kafka.enable.idempotence": "rows are always written idempotently",
    "kafka.partitioner.class": "keys go where Kafka's own producers send them; the column "
    "partition says otherwise",
    "kafka.interceptor.classes": "rows are not written by a producer that could have interceptors",
}
#: Larger than Kafka's 16 KiB: a task has all its rows at once.
_BATCH_SIZE = 256 * 1024


class Delivery(Enum):
    """How often a row is written."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """All options of a write."""

    bootstrap: str
    client: ClientConfig
    topic: str | None
    delivery: Delivery
    producer: ProducerConfig
    #: None: as long as the brokers allow.
    transaction_timeout_ms: int | None
    commits_topic: str
    transactional_id_prefix: str
    fail_on_data_loss: bool = True


def parse_sink_options(options: Options) -> SinkOptions:
    """Parse the options of a write, or raise :class:`OptionError`."""
    options = {name.lower(): value for name, value in options.items()}
    for name, why in _REFUSED.items():
        if name in options:
            raise OptionError(f"option {name} cannot be set: {why}")
    check_names(options, (*SINK_OPTIONS, *CLIENT_OPTIONS, *PRODUCER_OPTIONS, *_SPARK_OPTIONS))
    if one_of(options, "kafka.acks", ("all", "-1", "1", "0"), "all") not in ("all", "-1"):
        raise OptionError("option kafka.acks must be all: less would silently lose rows")
    timeout = "kafka.transaction.timeout.ms"
    return SinkOptions(
        bootstrap=bootstrap_servers(options),
        client=client_config(options),
        topic=_name(options, "topic"),
        delivery=Delivery(
            one_of(options, "delivery", (each.value for each in Delivery), "exactly-once")
        ),
        producer=_producer(options),
        transaction_timeout_ms=whole_number(options, timeout, 0, least=1)
        if timeout in options
        else None,
        commits_topic=_name(options, "commitsTopic") or COMMITS_TOPIC,
        transactional_id_prefix=_name(options, "transactionalIdPrefix") or TRANSACTIONAL_ID_PREFIX,
        fail_on_data_loss=truth(options, "failOnDataLoss", otherwise=True),
    )


def _name(options: Options, name: str) -> str | None:
    text = options.get(name.lower())
    if text is not None and not text.strip():
        raise OptionError(f"option {name} is empty")
    return text


def _producer(options: Options) -> ProducerConfig:
    default = ProducerConfig()

    def number(name: str, otherwise: int) -> int:
        return whole_number(options, f"kafka.{name}", otherwise, least=1)

    codec = Codec[
        one_of(
            options,
            "kafka.compression.type",
            (each.name.lower() for each in Codec),
            "none",
        ).upper()
    ]
    level = f"kafka.compression.{codec.name.lower()}.level"
    in_flight = "max.in.flight.requests.per.connection"
    try:
        return ProducerConfig(
            codec=codec,
            compression_level=whole_number(options, level, 0, least=-(1 << 17))
            if level in options
            else None,
            batch_size=number("batch.size", _BATCH_SIZE),
            linger_ms=0,
            buffer_memory=number("buffer.memory", default.buffer_memory),
            max_request_size=number("max.request.size", default.max_request_size),
            max_in_flight_requests=number(in_flight, default.max_in_flight_requests),
            max_block_ms=number("max.block.ms", default.max_block_ms),
            delivery_timeout_ms=number("delivery.timeout.ms", default.delivery_timeout_ms),
        )
    except ValueError as error:
        raise OptionError(f"kafka. options: {error}") from None
