"""(h) Time from exec to the first answer, and memory: idle, under load, and at most."""

from __future__ import annotations

import time

from bench.comparison.figures import Measure
from bench.versus import replay
from bench.versus.figures import Figure
from bench.versus.turns import Turn

TITLE = "footprint"
SETTINGS = {"num.partitions": "1"}

_IDLE_S = 1.0


def turn(turn: Turn) -> list[Figure]:
    """Look at a server that has just started, and again when it has been loaded."""
    server = turn.server
    time.sleep(_IDLE_S)
    idle_rss, idle_pss = server.rss_mb, server.pss_mb
    turn.warm_up(lambda number: replay.warm_up(turn, number))
    return [
        Figure("exec to first answer", Measure.START, server.start_s),
        Figure("idle, RSS", Measure.MEMORY, idle_rss),
        Figure("idle, PSS", Measure.MEMORY, idle_pss),
        Figure("after the load, RSS", Measure.MEMORY, server.rss_mb),
        Figure("after the load, PSS", Measure.MEMORY, server.pss_mb),
        Figure("at most, RSS", Measure.MEMORY, server.peak_rss_mb),
    ]
