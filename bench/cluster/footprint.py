"""(h) Memory of all nodes together: idle, after a load, and at most."""

from __future__ import annotations

import time

from bench.cluster import replay
from bench.cluster.turns import Turn
from bench.comparison.figures import Measure
from bench.versus.figures import Figure

TITLE = "footprint"
SETTINGS = {"num.partitions": "1"}

_IDLE_S = 2.0


def turn(turn: Turn) -> list[Figure]:
    """Look at nodes that have just started, and again when they have been loaded."""
    nodes = turn.server.nodes.values()
    time.sleep(_IDLE_S)
    idle_rss, idle_pss = (sum(one.rss_mb for one in nodes), sum(one.pss_mb for one in nodes))
    turn.warm_up(lambda number: replay.warm_up(turn, number))
    return [
        Figure("exec to first answer, the last node", Measure.START, max(n.start_s for n in nodes)),
        Figure("idle, RSS", Measure.MEMORY, idle_rss),
        Figure("idle, PSS", Measure.MEMORY, idle_pss),
        Figure("after the load, RSS", Measure.MEMORY, sum(one.rss_mb for one in nodes)),
        Figure("after the load, PSS", Measure.MEMORY, sum(one.pss_mb for one in nodes)),
        Figure("at most, RSS", Measure.MEMORY, sum(one.peak_rss_mb for one in nodes)),
    ]
