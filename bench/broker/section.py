"""The broker: throughput, requests, latency, start and memory, beside bare loops in the same run.

The broker runs as a process of its own, and so do the bare loops (``ceiling``); what counts is the
processor time of that process for the same bytes on 127.0.0.1. Data goes to the page cache of the
folder given by ``TMPDIR``.
"""

from __future__ import annotations

import signal
import sys

from bench.broker import commits, growth, loads, raw, throughput, waiting
from bench.processes import touch_memory
from bench.report import Row

#: What a broker and the bare loops beside it write before it is thrown away.
_MEMORY_BYTES = 2_000_000_000


def run(quick: bool = False) -> list[Row]:
    """Measure all cases."""
    # SIGTERM cleans up as an error does: it ends the child processes and removes the folders.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    touch_memory(_MEMORY_BYTES // 4 if quick else _MEMORY_BYTES)
    parts = (throughput, raw, commits, loads, waiting, growth)
    return [row for part in parts for row in part.rows(quick)]
