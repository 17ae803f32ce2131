"""Settings of the cleaner that are altered while it works, and policies that leave it nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from dohle.core.ids import TopicName
from dohle.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from dohle.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from dohle.server.node import Node
from dohle.storage.log import Log
from tests.server.metrics.scraping import scrape, value
from tests.server.partitions.compacted import CONFIGS, QUICK, is_clean, until
from tests.server.wire import Wire, batch, create_topic, on_node, produce

#: A round with so many bytes in a second ends after hours.
RATE = "log.cleaner.io.max.bytes.per.second"
SLOW = {**QUICK, RATE: "1"}
HOUR_MS = 3_600_000
#: Retention looks at logs all the time.
RETAINED = {
    **QUICK,
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "5",
}
ENDLESS = {**CONFIGS, "min.cleanable.dirty.ratio": "1"}


async def alter(wire: Wire, **settings: object) -> None:
    """Alter settings of all brokers, in one request."""
    configs = tuple(
        AlterableConfig(name=name.replace("_", "."), value=str(value))
        for name, value in settings.items()
    )
    resource = AlterConfigsResource(resource_type=4, resource_name="", configs=configs)
    answer = await wire.send(IncrementalAlterConfigsRequest(resources=(resource,)))
    assert answer.responses[0].error_code == 0, answer


async def filled(
    node: Node,
    wire: Wire,
    topic: str,
    configs: Mapping[str, str] = CONFIGS,
    timestamp: int = 1_000,
) -> Log:
    """A topic in which each of 30 keys was written twice in a row, in many segments."""
    await create_topic(wire, topic, configs=configs)
    for number in range(60):
        records = batch(b"%d" % number * 10, key=b"%d" % (number // 2), timestamp=timestamp)
        assert (await produce(wire, topic, records)).error_code == 0
    return node.broker.partitions.of_topic(TopicName(topic))[0].log


def test_another_rate_counts_at_once(tmp_path: Path) -> None:
    """Compaction 2: a round is under way, and would take hours."""

    async def scenario(node: Node, wire: Wire) -> None:
        log = await filled(node, wire, "slow")
        await until(lambda: log.cleaning is not None)
        assert node.cleaning.cleaner.round_count == 0
        await alter(wire, **{RATE: 1_000_000_000})
        await until(lambda: is_clean(log))

    on_node(tmp_path, scenario, SLOW)


def test_a_limit_to_the_rate_counts_at_once(tmp_path: Path) -> None:
    """Compaction 2: also where there was none."""

    async def scenario(node: Node, wire: Wire) -> None:
        first = await filled(node, wire, "first")
        await until(lambda: is_clean(first))
        await alter(wire, **{RATE: 1})
        rounds = node.cleaning.cleaner.round_count
        second = await filled(node, wire, "second")
        await until(lambda: second.cleaning is not None)
        assert node.cleaning.cleaner.round_count == rounds

    on_node(tmp_path, scenario, QUICK)


def test_another_backoff_counts_at_once(tmp_path: Path) -> None:
    """Compaction 2: the cleaner waits, and would for hours."""

    async def scenario(node: Node, wire: Wire) -> None:
        await until(lambda: node.cleaning.cleaner.last_run_ms is not None)
        log = await filled(node, wire, "dirty")
        assert log.cleaner_offset is None
        await alter(wire, log_cleaner_backoff_ms=5)
        await until(lambda: is_clean(log))

    on_node(tmp_path, scenario, {**QUICK, "log.cleaner.backoff.ms": str(HOUR_MS)})


def test_another_number_of_threads_counts_at_once(tmp_path: Path) -> None:
    """Compaction 2: so many logs are cleaned at the same time, while all rounds take hours."""

    async def scenario(node: Node, wire: Wire) -> None:
        logs = [await filled(node, wire, topic) for topic in ("one", "two", "three")]

        def count() -> int:
            return sum(log.cleaning is not None for log in logs)

        await until(lambda: count() == 1)
        await alter(wire, log_cleaner_threads=2)
        await until(lambda: count() == 2)
        await alter(wire, log_cleaner_threads=3)
        await until(lambda: count() == 3)
        await alter(wire, log_cleaner_threads=2)
        await until(lambda: count() == 2)
        assert node.cleaning.cleaner.round_count == 0

    on_node(tmp_path, scenario, SLOW)


def test_another_size_of_the_map_counts_at_once(tmp_path: Path) -> None:
    """Compaction 2: the round that is under way begins again, with a map of few keys."""

    async def scenario(node: Node, wire: Wire) -> None:
        log = await filled(node, wire, "keys")
        await until(lambda: log.cleaning is not None)
        await alter(wire, **{RATE: 1_000_000_000, "log_cleaner_dedupe_buffer_size": 300})
        cleaner = node.cleaning.cleaner
        # With the map of before it would be one round.
        await until(lambda: is_clean(log) and cleaner.round_count > 2)
        assert cleaner.last_round is not None
        assert cleaner.last_round.statistics.map_keys <= 12

    on_node(tmp_path, scenario, SLOW)


def test_what_does_not_concern_the_cleaner_does_not_disturb_it(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        log = await filled(node, wire, "slow")
        await until(lambda: log.cleaning is not None)
        cleaning = log.cleaning
        await alter(wire, log_flush_interval_ms=1_000)
        assert log.cleaning is cleaning

    on_node(tmp_path, scenario, SLOW)


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
@pytest.mark.parametrize("setting", ["log.cleaner.enable=false", "log.cleaner.threads=0"])
def test_without_a_cleaner_compacted_logs_do_not_expire_either(
    tmp_path: Path, setting: str, policy: str
) -> None:
    """Compaction 4: their retention is the cleaner's, and that of others goes on."""
    name, _, text = setting.partition("=")

    async def scenario(node: Node, wire: Wire) -> None:
        expiring = {**CONFIGS, "retention.ms": "1"}
        kept = await filled(node, wire, "kept", {**expiring, "cleanup.policy": policy})
        gone = await filled(node, wire, "gone", {**expiring, "cleanup.policy": "delete"})
        await until(lambda: gone.log_start_offset > 50)
        assert (kept.log_start_offset, kept.segments.first.base_offset) == (0, 0)

    on_node(tmp_path, scenario, {**RETAINED, name: text})


def test_with_an_empty_policy_nothing_expires_and_nothing_is_cleaned(tmp_path: Path) -> None:
    """Compaction 2: an empty list is legal, and means to keep all; DeleteRecords works (10)."""

    async def scenario(node: Node, wire: Wire) -> None:
        expiring = {**CONFIGS, "retention.ms": "1", "retention.bytes": "1"}
        kept = await filled(node, wire, "kept", {**expiring, "cleanup.policy": ""})
        gone = await filled(node, wire, "gone", {**expiring, "cleanup.policy": "delete"})
        cleaned = await filled(node, wire, "cleaned")
        size = kept.size
        await until(lambda: gone.log_start_offset > 50 and is_clean(cleaned))
        assert (kept.log_start_offset, kept.size, kept.cleaner_offset) == (0, size, None)
        # What has no key is taken.
        assert (await produce(wire, "kept", batch(b"x"))).error_code == 0
        asked = (DeleteRecordsPartition(partition_index=0, offset=40),)
        topics = (DeleteRecordsTopic(name=TopicName("kept"), partitions=asked),)
        answer = await wire.send(DeleteRecordsRequest(topics=topics, timeout_ms=5_000))
        result = answer.topics[0].partitions[0]
        assert (result.error_code, result.low_watermark) == (0, 40)
        await until(lambda: kept.segments.first.base_offset > 30)
        assert kept.log_end_offset == 61

    on_node(tmp_path, scenario, RETAINED)


def test_metrics_tell_of_what_is_dirty_and_overdue(tmp_path: Path) -> None:
    """Compaction 13: names and meanings are Kafka's."""

    async def scenario(node: Node, wire: Wire) -> None:
        hour_ago = int(time.time() * 1000) - HOUR_MS
        overdue = {**ENDLESS, "max.compaction.lag.ms": "1000"}
        log = await filled(node, wire, "overdue", overdue, timestamp=hour_ago)
        await until(lambda: log.cleaning is not None)
        series = await scrape(node)
        assert value(series, "kafka_log_logcleanermanager_max_dirty_percent") == 100
        delay_s = value(series, "kafka_log_logcleaner_max_compaction_delay_secs")
        assert HOUR_MS / 1000 - 1 <= delay_s < HOUR_MS / 1000 + 600
        assert value(series, "kafka_log_logcleaner_deadthreadcount") == 0

    on_node(tmp_path, scenario, SLOW)


def test_metrics_tell_of_the_last_round(tmp_path: Path) -> None:
    """Compaction 13."""
    # For 33 keys, of which 30 are used.
    small = {"log.cleaner.dedupe.buffer.size": str(int(33 * 24.04 * 8 / 7) + 30)}

    async def scenario(node: Node, wire: Wire) -> None:
        log = await filled(node, wire, "cleaned")
        assert node.cleaning.cleaner.round_count == 0
        await alter(wire, log_cleaner_backoff_ms=HOUR_MS - 1)
        await until(lambda: is_clean(log) and node.cleaning.cleaner.round_count > 0)
        series = await scrape(node)
        share = value(series, "kafka_log_logcleaner_max_buffer_utilization_percent")
        assert 100 * 20 / 33 < share <= 100
        assert 0 < value(series, "kafka_log_logcleaner_max_clean_time_secs") < 600
        assert 0 < value(series, "kafka_log_logcleaner_cleaner_recopy_percent") < 100
        assert value(series, "kafka_log_logcleaner_max_compaction_delay_secs") == 0

    late = {"log.cleaner.backoff.ms": str(HOUR_MS), "log.cleaner.io.buffer.load.factor": "1"}
    on_node(tmp_path, scenario, {**QUICK, **small, **late})
