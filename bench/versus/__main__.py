"""``python -m bench.versus [--rounds N] [--quick] [--json FILE] [--profile] [parts ...]``.

Apache Kafka comes from Maven, as for tests/jvm. Parts are named by their letters or names.
"""

from __future__ import annotations

from bench.comparison.results import Report
from bench.versus.figures import KAFKA
from bench.versus.program import Program
from bench.versus.servers import dohle
from bench.versus.turns import PARTS, find_part, stand

PROGRAM = Program(
    name="bench.versus",
    about=__doc__,
    report=Report("versus", "dohle beside Apache Kafka", KAFKA),
    parts=PARTS,
    find_part=find_part,
    stand=stand,
    alone=lambda part: dohle(part.SETTINGS),
    memory_bytes=2_000_000_000,
)

if __name__ == "__main__":
    raise SystemExit(PROGRAM.main())
