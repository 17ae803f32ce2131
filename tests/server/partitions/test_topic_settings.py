"""What the settings of a compacted topic say to its logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from dohle.core.config.topic import effective_topic_config
from dohle.core.steps import finish
from dohle.server.partitions.topic_settings import TopicSettings
from dohle.storage.cleaning.cleaner import LogCleaner
from dohle.storage.config import LogConfig
from tests.server.wire import node_config
from tests.storage.cleaning.cleaning import SETTINGS, put
from tests.storage.logs import Node

HOUR_MS = 3_600_000


def log_config(**settings: object) -> LogConfig:
    pairs = {name.replace("_", "."): str(value) for name, value in settings.items()}
    values = effective_topic_config(pairs, node_config(Path("/unused")))
    return TopicSettings.of("topic", values).log


@pytest.mark.parametrize(
    ("policy", "segment_ms", "max_lag_ms", "effective"),
    [
        ("compact", 2 * HOUR_MS, HOUR_MS, HOUR_MS),
        ("compact", HOUR_MS, 2 * HOUR_MS, HOUR_MS),
        ("compact,delete", 2 * HOUR_MS, HOUR_MS, HOUR_MS),
        ("delete", 2 * HOUR_MS, HOUR_MS, 2 * HOUR_MS),
        ("", 2 * HOUR_MS, HOUR_MS, 2 * HOUR_MS),
    ],
)
def test_a_compacted_log_is_rolled_within_its_largest_lag(
    policy: str, segment_ms: int, max_lag_ms: int, effective: int
) -> None:
    """Compaction 2: ``segment.ms`` is at most ``max.compaction.lag.ms``."""
    found = log_config(
        cleanup_policy=policy, segment_ms=segment_ms, max_compaction_lag_ms=max_lag_ms
    )
    assert found.segment_ms == effective


def test_beside_a_running_producer_everything_is_cleaned_within_the_largest_lag() -> None:
    """Compaction 16.8: and ``log.cleaner.backoff.ms``, and until the next append rolls the log.

    The ratio never lets the log be cleaned, so it is the lag that does.
    """
    lag_ms, backoff_ms, between_ms = 60_000, 15_000, 1_000
    config = log_config(
        cleanup_policy="compact",
        max_compaction_lag_ms=lag_ms,
        min_cleanable_dirty_ratio=1,
        segment_ms=7 * 24 * HOUR_MS,
    )
    node = Node(config)
    log, cleaner = node.log, LogCleaner(node.manager, node.clock)
    written_ms: list[int] = []
    rounds = 0
    for second in range(600):
        now_ms = node.clock.now_ms()
        put(log, (b"key", b"%d" % second), timestamps=(now_ms,))
        written_ms.append(now_ms)
        if second % (backoff_ms // between_ms) == 0:
            rounds += finish(cleaner.clean_next(SETTINGS))
            oldest_ms = now_ms - lag_ms - backoff_ms - between_ms
            dirty = written_ms[log.cleaner_offset or 0 :]
            assert min(dirty) >= oldest_ms
            # No sooner than it must be, either.
            assert second > lag_ms // between_ms or log.cleaner_offset is None
        node.clock.advance(between_ms)
    assert 5 <= rounds <= 10
