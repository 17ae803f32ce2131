"""The settings of the clients of a run, some of which are drawn."""

from __future__ import annotations

from dohle.client import ConsumerConfig, IsolationLevel, OffsetReset, ProducerConfig
from dohle.records.compression.codecs import Codec
from dohle.testing.simulation.machine import SimulatedHost

_TRANSACTION_TIMEOUT_MS = 6_000


def plain(host: SimulatedHost) -> ProducerConfig:
    """Return those of a producer that is idempotent, or need not be."""
    return ProducerConfig(
        delivery_timeout_ms=host.rng.choice((4_000, 15_000)),
        max_block_ms=4_000,
        linger_ms=host.rng.choice((0, 5, 50)),
        codec=_codec(host),
        allow_auto_create_topics=False,
    )


def _codec(host: SimulatedHost) -> Codec:
    """Return no compression, or any, one as often as the other."""
    return host.rng.choice((Codec.NONE, host.rng.choice(list(Codec))))


def transactional(transactional_id: str, host: SimulatedHost) -> ProducerConfig:
    """Return those of a producer of transactions."""
    return ProducerConfig(
        codec=_codec(host),
        transactional_id=transactional_id,
        transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
        delivery_timeout_ms=5_000,
        max_block_ms=4_000,
        allow_auto_create_topics=False,
    )


def grouped(group: str) -> ConsumerConfig:
    """Return those of a member of a group."""
    return ConsumerConfig(
        group_id=group,
        isolation_level=IsolationLevel.READ_COMMITTED,
        auto_offset_reset=OffsetReset.EARLIEST,
        enable_auto_commit=False,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=1_000,
        max_poll_interval_ms=20_000,
        fetch_max_wait_ms=200,
    )
