"""``python -m bench.cluster [--rounds N] [--quick] [--profile | --alone] [parts ...]``.

Three nodes of dohle and three of Apache Kafka take turns at the same loads, with a replica of every
partition on each node and acks=all. Processor time and memory are those of all nodes together.
Apache Kafka comes from Maven, as for tests/jvm. Parts are named by their letters or names.
"""

from __future__ import annotations

from bench.cluster.nodes import dohle
from bench.cluster.turns import PARTS, find_part, stand
from bench.comparison.results import Report
from bench.versus.figures import KAFKA
from bench.versus.program import Program

PROGRAM = Program(
    name="bench.cluster",
    about=__doc__,
    report=Report(
        "cluster",
        "Three nodes of dohle beside three of Apache Kafka",
        KAFKA,
        explanation=(
            " Every partition has a replica on each node, and writes are acknowledged by all."
            " Processor time and memory are those of all nodes, and bytes count once, however"
            " often they are replicated. All nodes and the clients share one machine."
        ),
    ),
    parts=PARTS,
    find_part=find_part,
    stand=stand,
    alone=lambda part: dohle(part.SETTINGS),
    memory_bytes=4_000_000_000,
    rounds=3,
)

if __name__ == "__main__":
    raise SystemExit(PROGRAM.main())
