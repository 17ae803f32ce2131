"""The log cleaner, under the names that Kafka's MBeans have in Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dohle.metrics.exposition import family, labels, single
from dohle.server.metrics.sources import Sources

_CLEANER = "kafka_log_logcleaner"
_MANAGER = "kafka_log_logcleanermanager"


def collect_cleaner(sources: Sources) -> Iterator[str]:
    """Tell what the last rounds did, what there is to do, and what cannot be cleaned."""
    cleaner, broker = sources.cleaner, sources.broker
    if cleaner is None or broker is None:
        return
    last = cleaner.last_round
    share = None if last is None else 100 * last.statistics.buffer_utilization
    recopied = None if last is None else last.recopy_percent
    for name, doc, value in (
        (
            "max_buffer_utilization_percent",
            "How full the memory for keys was in the last round.",
            share,
        ),
        ("cleaner_recopy_percent", "How much of what it read the last round kept.", recopied),
        (
            "max_clean_time_secs",
            "How long the last round took.",
            None if last is None else round(last.took_s, 3),
        ),
        (
            "max_compaction_delay_secs",
            "By how much a log has exceeded max.compaction.lag.ms.",
            cleaner.overdue_ms_max / 1000,
        ),
        ("deadthreadcount", "Cleaner threads that have died: they do not, here.", 0),
    ):
        yield from single(f"{_CLEANER}_{name}", "gauge", doc, value)
    yield from single(
        "dohle_log_cleaner_rounds_total",
        "counter",
        "How many rounds of cleaning came to their end.",
        cleaner.round_count,
    )
    yield from single(
        f"{_MANAGER}_max_dirty_percent",
        "gauge",
        "How much of the dirtiest log was dirty when it was last looked at.",
        100 * cleaner.dirty_ratio_max,
    )
    yield from single(
        f"{_MANAGER}_time_since_last_run_ms",
        "gauge",
        "How long ago the cleaner has last looked for something to do.",
        None if cleaner.last_run_ms is None else cleaner.ms_since_last_run,
    )
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for partition in cleaner.uncleanable:
        if (directory := broker.logs.directory_of(partition)) is not None:
            counts[directory.path] += 1
            sizes[directory.path] += directory.logs[partition].size
    paths = [directory.path for directory in broker.logs.directories]
    for name, doc, found in (
        ("uncleanable_partitions_count", "Logs that cannot be cleaned.", counts),
        ("uncleanable_bytes", "The size of the logs that cannot be cleaned.", sizes),
    ):
        yield from family(
            f"{_MANAGER}_{name}",
            "gauge",
            doc,
            [(labels({"logDirectory": path}), found[path]) for path in paths],
        )
