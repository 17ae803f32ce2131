"""Asking a node over HTTP, and taking its metrics apart with Prometheus' own parser."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from dohle.server.node import Node

#: Values by name and labels.
Series = dict[str, dict[frozenset[tuple[str, str]], float]]

TIMEOUT_S = 30


class Answer(NamedTuple):
    status: int
    head: str
    body: str


async def raw(node: Node, request: bytes) -> bytes:
    """Send bytes, and return all that comes until the end."""
    assert node.metrics is not None
    async with asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_connection(node.metrics.host, node.metrics.port)
        try:
            writer.write(request)
            return await reader.read()
        finally:
            writer.close()


async def get(node: Node, path: str, method: str = "GET") -> Answer:
    answer = await raw(node, f"{method} {path} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    if b"Transfer-Encoding: chunked" in head and method == "GET":
        body = unchunked(body)
    return Answer(int(head.split(b" ")[1]), head.decode(), body.decode())


def unchunked(body: bytes) -> bytes:
    found = b""
    while True:
        size, _, body = body.partition(b"\r\n")
        count = int(size, 16)
        if count == 0:
            assert body == b"\r\n", "the end of the last chunk"
            return found
        found += body[:count]
        assert body[count : count + 2] == b"\r\n"
        body = body[count + 2 :]


async def scrape(node: Node) -> Series:
    answer = await get(node, "/metrics")
    assert answer.status == 200
    return parse(answer.body)


def parse(text: str) -> Series:
    found: Series = {}
    names = set()
    for family in text_string_to_metric_families(text):
        assert family.name not in names, f"{family.name} has two families"
        names.add(family.name)
        assert family.documentation, family.name
        assert family.type != "unknown", family.name
        for sample in family.samples:
            by_labels = found.setdefault(sample.name, {})
            labels = frozenset(sample.labels.items())
            assert labels not in by_labels, f"{sample.name} {sample.labels} is there twice"
            by_labels[labels] = sample.value
    return found


def value(series: Series, name: str, **labels: str) -> float:
    """Return one value; KeyError if there is no such series."""
    return series[name][frozenset(labels.items())]
