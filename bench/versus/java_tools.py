"""(b) kafka-producer-perf-test and kafka-consumer-perf-test: Kafka's own tools, as they are.

They run in one machine for all turns, so that they are compiled as well for the one server as for
the other. The producer is idempotent and the consumer in a group, as both are by default.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.jvm.tools import Tools

from bench.comparison.figures import Measure
from bench.versus.figures import Figure
from bench.versus.topics import create_topic, delete_topics
from bench.versus.turns import Turn

TITLE = "Java tools"
SETTINGS = {"num.partitions": "1"}

#: They say what is 1,048,576 bytes "MB".
_MIB = 1 << 20
_PARTITIONS = 3


@dataclass(frozen=True, slots=True)
class _Load:
    name: str
    record_size: int
    records: int
    properties: tuple[str, ...]


_LOADS = (
    _Load("1 KiB × 16 KB", 1024, 200_000, ()),
    _Load("1 KiB × 1 MB, lz4", 1024, 200_000, ("batch.size=1000000", "compression.type=lz4")),
    _Load("100 B × 16 KB", 100, 800_000, ()),
)


def turn(turn: Turn) -> list[Figure]:
    """Produce and consume with each load."""
    tools = Tools(turn.clients, turn.server.address)

    def warm_up(number: int) -> None:
        topic = f"warm-{number}"
        _run(turn, tools, topic, _LOADS[number % len(_LOADS)], 8)
        delete_topics(turn.server.address, topic)

    turn.warm_up(warm_up, cycle=len(_LOADS))
    return [
        figure
        for number, load in enumerate(_LOADS)
        for figure in _run(turn, tools, f"load-{number}", load, 1)
    ]


def _run(turn: Turn, tools: Tools, topic: str, load: _Load, divisor: int) -> list[Figure]:
    server = turn.server
    create_topic(server.address, topic, _PARTITIONS)
    records = turn.size(load.records) // divisor
    size = records * load.record_size
    rates: list[float] = []
    produced = server.measure(
        size, records, lambda: rates.append(_produce(tools, topic, load, records))
    )
    consumed = server.measure(size, records, lambda: rates.append(_consume(tools, topic, records)))
    return [
        Figure(f"produce, {load.name}", Measure.THROUGHPUT, rates[0]),
        Figure(f"produce, {load.name}", Measure.CPU_PER_GB, produced.cpu_s_per_gb),
        Figure(f"consume, {load.name}", Measure.THROUGHPUT, rates[1]),
        Figure(f"consume, {load.name}", Measure.CPU_PER_GB, consumed.cpu_s_per_gb),
    ]


def _produce(tools: Tools, topic: str, load: _Load, records: int) -> float:
    ran = tools.producer_perf_test(
        *("--topic", topic, "--num-records", str(records), "--throughput", "-1"),
        *("--record-size", str(load.record_size)),
        *(word for each in load.properties for word in ("--command-property", each)),
    )
    # "300000 records sent, 81234.5 records/sec (79.33 MB/sec), ..."
    return float(ran.lines[-1].split("(")[1].split()[0]) * _MIB / 1e6


def _consume(tools: Tools, topic: str, records: int) -> float:
    ran = tools.consumer_perf_test(
        *("--topic", topic, "--num-records", str(records), "--hide-header")
    )
    # start, end, MB, MB/s, records, records/s, ms of rebalancing, ms of fetching, fetched MB/s, ...
    return float(ran.lines[-1].split(", ")[8]) * _MIB / 1e6
