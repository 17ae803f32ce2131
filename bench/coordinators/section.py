"""The coordinators: offsets, groups and transactions, each beside what any request costs.

No other broker is at hand, so the peer is a floor measured in the same run: as many requests that
are only read and answered (pings), or as many plain acks=all produce requests. Processor time is
the broker's. There are no figures to be reached. The log of a group coordinator is beside itself
before it was cleaned.
"""

from __future__ import annotations

import signal
import sys

from bench.coordinators import groups, loading, offsets, transactions
from bench.report import Row
from dohle.server.run import raise_descriptor_limit


def run(quick: bool = False) -> list[Row]:
    """Measure all cases."""
    # SIGTERM cleans up as an error does: it ends the child processes and removes the folders.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    # A thousand members have as many connections.
    raise_descriptor_limit()
    return [
        *loading.rows(quick),
        *offsets.rows(quick),
        *groups.rows(quick),
        *transactions.rows(quick),
    ]
