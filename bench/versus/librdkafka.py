"""(a) librdkafka, the C client, as idempotent producer and as consumer.

MB/s count the records' values as the application sees them; processor time is per GB of those too,
so that what a codec saves on the wire counts for the server.
"""

from __future__ import annotations

from itertools import product

from bench.comparison.figures import Measure
from bench.librdkafka import CHUNK_RECORDS, Load, consume, produce
from bench.processes import Sample
from bench.versus.figures import Figure
from bench.versus.topics import create_topic, delete_topics
from bench.versus.turns import Turn

TITLE = "librdkafka"
SETTINGS = {"num.partitions": "1"}

LOADS = [Load(*case) for case in product((100, 1024), (16_384, 1_000_000), ("none", "lz4", "zstd"))]
#: What is produced of records of this size: about half a second's worth.
_BYTES = {100: 48_000_000, 1024: 240_000_000}
_WARM_UP_RECORDS = 50_000


def turn(turn: Turn) -> list[Figure]:
    """Produce and consume with each load."""

    def warm_up(number: int) -> None:
        topic = f"warm-{number}"
        _both(turn, topic, LOADS[number % len(LOADS)], _WARM_UP_RECORDS)
        delete_topics(turn.server.address, topic)

    turn.warm_up(warm_up, cycle=len(LOADS))
    found = []
    for number, load in enumerate(LOADS):
        size = turn.size(_BYTES[load.record_size])
        records = size // load.record_size // CHUNK_RECORDS * CHUNK_RECORDS
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
    create_topic(turn.server.address, topic)
    produced = produce(turn.server, topic, load, records, enable_idempotence=True)
    return produced, consume(turn.server, topic, records)
