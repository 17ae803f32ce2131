"""The dashboard in ``docs`` asks for nothing that a node does not tell."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from dohle.server.node import Node
from tests.server.handlers.classic_members import stable
from tests.server.handlers.offsets import commit, find_coordinator
from tests.server.metrics.scraping import scrape
from tests.server.metrics.working import fetch_request
from tests.server.transactions.txn_producer import PROPERTIES
from tests.server.wire import Wire, batch, create_topic, on_node, produce_request

DASHBOARD = Path(__file__).parents[3] / "docs" / "grafana-dashboard.json"
METRIC = re.compile(r"\b(?:kafka|dohle|process)_[a-z_]+")
SELECTOR = re.compile(r"\b((?:kafka|dohle|process)_[a-z_]+)\{([^}]*)\}")
LABEL = re.compile(r"(\w+)(?:=|!=|=~|!~)\"")
#: Added by Prometheus.
BY_SCRAPING = {"instance"}


def expressions(dashboard: dict[str, Any]) -> list[str]:
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    return found + [one["definition"] for one in dashboard["templating"]["list"][1:]]


def test_every_series_of_the_dashboard_is_there(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t", configs={"flush.messages": "1"})
        await wire.send(produce_request("t", batch(b"v")), 12)
        await wire.send(fetch_request(0, topic="t"), 12)
        await find_coordinator(node, wire)
        assert await commit(node, wire, {("t", 0): 0}, group="simple") == {("t", 0): 0}
        await stable(wire)
        while not node.sources.probe.tick_count > 1:
            await scrape(node)
        series = await scrape(node)
        asked = expressions(json.loads(DASHBOARD.read_text()))
        assert len(asked) > 30
        for expression in asked:
            for name in METRIC.findall(expression):
                assert name in series, expression
            for name, selector in SELECTOR.findall(expression):
                known = {label for labels in series[name] for label, _ in labels}
                unknown = set(LABEL.findall(selector)) - known - BY_SCRAPING
                assert not unknown, expression

    on_node(tmp_path, scenario, {"metrics.listener": "127.0.0.1:0", **PROPERTIES})
