"""(a) librdkafka, the C client, as idempotent producer and as consumer.

Each node leads one of three partitions. MB/s count the records' values as the application sees
them, and processor time is per GB of those.
"""

from __future__ import annotations

from itertools import product

from bench.cluster.nodes import NODES
from bench.cluster.topics import create_topic
from bench.cluster.turns import Turn
from bench.comparison.figures import Measure
from bench.librdkafka import CHUNK_RECORDS, Load, consume, produce
from bench.processes import Sample
from bench.versus.figures import Figure
from bench.versus.topics import delete_topics

TITLE = "librdkafka"
SETTINGS = {"num.partitions": "1"}

LOADS = [Load(*case) for case in product((100, 1024), (16_384, 1_000_000), ("none", "lz4"))]
#: What is produced of records of this size.
_BYTES = {100: 36_000_000, 1024: 184_320_000}
#: As many go to every partition.
_STEP = CHUNK_RECORDS * len(NODES)


def turn(turn: Turn) -> list[Figure]:
    """Produce and consume with each load."""

    def warm_up(number: int) -> None:
        topic = f"warm-{number}"
        _both(turn, topic, LOADS[number % len(LOADS)], _STEP)
        delete_topics(turn.server.nodes[1].address, topic)

    turn.warm_up(warm_up, cycle=len(LOADS))
    found = []
    for number, load in enumerate(LOADS):
        records = max(_STEP, turn.size(_BYTES[load.record_size]) // load.record_size)
        records = records // _STEP * _STEP
        samples = _both(turn, f"load-{number}", load, records)
        for action, sample in zip(("produce", "consume"), samples, strict=True):
            case = f"{action}, {load}"
            values = sample._replace(size=records * load.record_size)
            found += [
                Figure(case, Measure.THROUGHPUT, values.mb_per_s),
                Figure(case, Measure.CPU_PER_GB, values.cpu_s_per_gb),
            ]
    return found


def _both(turn: Turn, topic: str, load: Load, records: int) -> tuple[Sample, Sample]:
    create_topic(turn.server, topic, NODES)
    partitions = len(NODES)
    produced = produce(turn.server, topic, load, records, partitions, enable_idempotence=True)
    return produced, consume(turn.server, topic, records, partitions)
