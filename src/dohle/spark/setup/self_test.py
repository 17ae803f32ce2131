"""Starts Spark, runs one query that needs Java and Python workers, and reports how long it took.

Run as a program, since Spark's virtual machine stays with the process that started it. The last
line on stdout is one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

from dohle.spark.session import SparkUnavailable, session

_ROWS = 10


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


def main() -> int:
    """Report the result, or the reason why Spark does not run."""
    # pyspark's warnings about the installed pandas are irrelevant here.
    warnings.simplefilter("ignore")
    began = time.monotonic()
    try:
        spark = session("dohle-doctor", "local[1]")
        started = time.monotonic()
        rows = spark.range(_ROWS).mapInArrow(_same, "id long").collect()
    except SparkUnavailable as error:
        return _answer({"error": str(error)})
    except Exception as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        return _answer({"error": f"{type(error).__name__}: {reason[0]}"})
    if sorted(row.id for row in rows) != list(range(_ROWS)):
        return _answer({"error": f"a query for {_ROWS} rows answered {rows}"})
    ended = time.monotonic()
    found = {"version": spark.version, "start_s": started - began, "query_s": ended - started}
    spark.stop()
    return _answer(found)


def _answer(found: dict[str, object]) -> int:
    sys.stdout.write(json.dumps(found) + "\n")
    return 1 if "error" in found else 0


if __name__ == "__main__":
    sys.exit(main())
