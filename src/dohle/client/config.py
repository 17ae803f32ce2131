"""The settings of the client, under Kafka's own names and with Kafka's own defaults.

Dots became underscores, and units come last, as in Kafka's names. Words are understood
(``codec="gzip"``, ``acks="all"``). An invalid value is refused when the settings are created, not
when they are used. :mod:`dohle.client.settings.names` reads them from a dict with Kafka's names.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum, IntEnum

from dohle.client.group.assignors import ASSIGNORS, JAVA_CLASSES
from dohle.client.interceptors import (
    ConsumerInterceptor,
    ProducerInterceptor,
    interceptors_of,
)
from dohle.client.settings.values import take_words
from dohle.records.compression.codecs import Codec
from dohle.security.client import PLAINTEXT, ClientSecurity

#: How many batches of a producer and partition a broker remembers to recognise duplicates.
IDEMPOTENT_IN_FLIGHT_MAX = 5
_CLASSIC_ONLY = ("partition_assignment_strategy", "session_timeout_ms", "heartbeat_interval_ms")


class IsolationLevel(IntEnum):
    """Which transactional records a consumer sees, by the number in requests."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class OffsetReset(Enum):
    """What a consumer does when its offset is not in the log: ``auto.offset.reset``."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


class GroupProtocol(Enum):
    """How a consumer takes part in its group: ``group.protocol``."""

    #: A member of the group assigns partitions.
    CLASSIC = "classic"
    #: The broker does, and only what moves is given back (KIP-848; Kafka 4.0 and newer).
    CONSUMER = "consumer"


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """What all parts of the client share: connections, retries and metadata."""

    client_id: str = "dohle"
    request_timeout_ms: int = 30_000
    #: The time for a whole operation, including its retries: ``default.api.timeout.ms``.
    api_timeout_ms: int = 60_000
    socket_connection_setup_timeout_ms: int = 10_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1000
    #: Retries after the first attempt; the time for the operation bounds them too.
    retries: int = 2_147_483_647
    metadata_max_age_ms: int = 300_000
    #: Unanswered requests on one connection; further ones wait.
    in_flight_requests_max: int = 100
    #: A larger response is treated as an error: usually the largest request that a broker accepts.
    response_bytes_max: int = 104_857_600
    #: A connection keeps memory of up to this size for the next large response.
    response_bytes_kept: int = 2_097_152
    #: Whom it trusts, and how it shows who it is: ``security.protocol``, ``ssl.*``, ``sasl.*``.
    security: ClientSecurity = PLAINTEXT

    def __post_init__(self) -> None:
        take_words(self)
        _positive(
            self,
            "request_timeout_ms",
            "api_timeout_ms",
            "socket_connection_setup_timeout_ms",
            "retry_backoff_ms",
            "retry_backoff_max_ms",
            "metadata_max_age_ms",
            "in_flight_requests_max",
            "response_bytes_max",
        )
        if self.retries < 0:
            raise ValueError(f"retries is {self.retries}: use 0 for none")


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """How records are batched and sent to the leaders."""

    #: 0: no acknowledgement; 1: the leader has written it; -1 (``all``): all in-sync replicas have.
    acks: int = -1
    enable_idempotence: bool = True
    codec: Codec = Codec.NONE
    compression_level: int | None = None
    batch_size: int = 16_384
    linger_ms: int = 5
    buffer_memory: int = 33_554_432
    max_request_size: int = 1_048_576
    #: Unanswered requests to one broker.
    max_in_flight_requests: int = IDEMPOTENT_IN_FLIGHT_MAX
    #: How long ``send`` waits for metadata and for buffer space.
    max_block_ms: int = 60_000
    #: How long a record may take from ``send`` to its outcome.
    delivery_timeout_ms: int = 120_000
    #: Enables transactions, and fences any earlier producer with this id.
    transactional_id: str | None = None
    #: The broker aborts a transaction that is open for longer.
    transaction_timeout_ms: int = 60_000
    #: Transactions without a timeout, if the broker allows that (KIP-939).
    transaction_two_phase_commit_enable: bool = False
    allow_auto_create_topics: bool = True
    #: They see each record before it is sent, and its outcome: ``interceptor.classes``.
    interceptors: tuple[ProducerInterceptor, ...] = ()

    def __post_init__(self) -> None:
        take_words(self)
        found = interceptors_of(self.interceptors, ProducerInterceptor)
        object.__setattr__(self, "interceptors", found)
        _positive(
            self,
            "batch_size",
            "buffer_memory",
            "max_request_size",
            "max_in_flight_requests",
            "max_block_ms",
            "delivery_timeout_ms",
            "transaction_timeout_ms",
        )
        if self.transactional_id == "":
            raise ValueError("transactional_id is empty: leave it out, or give it a value")
        if self.transactional_id is not None and not self.enable_idempotence:
            raise ValueError("transactions need enable_idempotence")
        if self.transaction_two_phase_commit_enable and self.transactional_id is None:
            raise ValueError("transaction_two_phase_commit_enable needs a transactional_id")
        if self.linger_ms < 0:
            raise ValueError(f"linger_ms is {self.linger_ms}: use 0 to send without waiting")
        if self.acks not in (0, 1, -1):
            raise ValueError(f"acks is {self.acks}: it must be 0, 1 or -1 (all)")
        if self.enable_idempotence and self.acks != -1:
            raise ValueError(
                "an idempotent producer needs acks=-1 (all): set enable_idempotence=False to "
                f"send with acks={self.acks}"
            )
        if self.enable_idempotence and self.max_in_flight_requests > IDEMPOTENT_IN_FLIGHT_MAX:
            raise ValueError(
                f"an idempotent producer has at most {IDEMPOTENT_IN_FLIGHT_MAX} requests in "
                f"flight, not {self.max_in_flight_requests}"
            )


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """How much is fetched at a time, and which records are returned."""

    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    auto_offset_reset: OffsetReset = OffsetReset.LATEST
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 52_428_800
    max_partition_fetch_bytes: int = 1_048_576
    fetch_max_wait_ms: int = 500
    #: Where this consumer is. Brokers that are set up for it send it to a replica in the same rack
    #: (``broker.rack``), so that records do not travel far (KIP-392).
    client_rack: str = ""
    check_crcs: bool = True
    #: The most bytes that the records of one batch may decompress to.
    decompressed_bytes_max: int = 134_217_728
    #: The group to share topics with (``subscribe``), or to store offsets for (``commit``).
    group_id: str | None = None
    group_protocol: GroupProtocol = GroupProtocol.CLASSIC
    #: With the protocol ``consumer``, the assignor to ask the broker for: ``uniform``, ``range``.
    group_remote_assignor: str | None = None
    #: Makes it a static member: one that restarts with this id keeps its assignment.
    group_instance_id: str | None = None
    #: With the protocol ``classic``, the assignors to offer, the preferred one first. Members keep
    #: their partitions during a rebalance only if all assignors are cooperative.
    partition_assignment_strategy: tuple[str, ...] = ("range", "cooperative-sticky")
    #: How long the group waits for a heartbeat before it removes this member. With the protocol
    #: ``consumer`` the broker says both.
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3000
    #: How long a rebalance waits for this member to ask for more records.
    max_poll_interval_ms: int = 300_000
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5000
    #: They see records before they are handed out, and commits: ``interceptor.classes``.
    interceptors: tuple[ConsumerInterceptor, ...] = ()

    def __post_init__(self) -> None:
        take_words(self)
        found = interceptors_of(self.interceptors, ConsumerInterceptor)
        object.__setattr__(self, "interceptors", found)
        _positive(
            self,
            "fetch_max_bytes",
            "max_partition_fetch_bytes",
            "decompressed_bytes_max",
            "session_timeout_ms",
            "heartbeat_interval_ms",
            "max_poll_interval_ms",
            "auto_commit_interval_ms",
        )
        if self.group_id == "":
            raise ValueError("group_id is empty: leave it out, or give it a value")
        strategy = tuple(
            JAVA_CLASSES.get(name, name) for name in self.partition_assignment_strategy
        )
        object.__setattr__(self, "partition_assignment_strategy", strategy)
        for name in strategy:
            if name not in ASSIGNORS:
                raise ValueError(f"unknown assignor {name!r}: choose from {', '.join(ASSIGNORS)}")
        if not self.partition_assignment_strategy:
            raise ValueError("partition_assignment_strategy is empty: a group needs an assignor")
        _check_protocol(self)
        if self.fetch_min_bytes < 0 or self.fetch_max_wait_ms < 0:
            raise ValueError("fetch_min_bytes and fetch_max_wait_ms cannot be negative")


def _check_protocol(config: ConsumerConfig) -> None:
    """Refuse what the other protocol has: it would have no effect."""
    if config.group_protocol is GroupProtocol.CLASSIC:
        if config.group_remote_assignor is not None:
            raise ValueError("group_remote_assignor needs group_protocol=consumer")
        return
    for field in fields(config):
        if field.name in _CLASSIC_ONLY and getattr(config, field.name) != field.default:
            raise ValueError(
                f"{field.name} has no effect with group_protocol=consumer, where the broker says "
                "it: leave it out"
            )


def _positive(config: object, *names: str) -> None:
    for name in names:
        if (value := getattr(config, name)) <= 0:
            raise ValueError(f"{name} is {value}: it must be more than 0")
