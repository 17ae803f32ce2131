"""What tests ask a node of a cluster, of any kind, by dohle's own client."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from dohle.client import Admin, ClientConfig, Cluster

T = TypeVar("T")

_TIMEOUT_MS = 2_000
_CLIENT = ClientConfig(request_timeout_ms=_TIMEOUT_MS, api_timeout_ms=_TIMEOUT_MS)


async def active_controller(address: str) -> int:
    """Return who leads the quorum, as this broker knows."""
    async with Cluster(address, _CLIENT) as client:
        return (await Admin(client).describe_quorum()).leader_id


async def unfenced(address: str) -> set[int]:
    """Return the brokers that are not fenced, as this one knows."""
    async with Cluster(address, _CLIENT) as client:
        described = await Admin(client).describe_cluster(include_fenced=True)
        return {each.node_id for each in described.brokers if not each.is_fenced}


def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """Run it on a loop of its own, although the caller may be inside of one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
