"""A node in the foreground: how it is told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dohle.server.node import Node
from dohle.server.run import serve
from tests.server.wire import node_config


@contextmanager
def signals_restored() -> Iterator[None]:
    kept = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def tell_to_stop(*_: Node) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


async def serve_for(turns: int, path: Path) -> int:
    """Run a node that is told to stop so many turns of the loop after it was told to start."""

    async def tell() -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        tell_to_stop()

    telling = asyncio.ensure_future(tell())
    code = await serve(node_config(path), lambda _: None)
    await telling
    return code


@pytest.mark.parametrize("turns", [0, 3, 10, 30])
def test_a_node_that_is_told_to_stop_while_it_starts_does_so_and_starts_again(
    tmp_path: Path, turns: int
) -> None:
    with signals_restored():
        assert asyncio.run(serve_for(turns, tmp_path)) == 0
        # Nothing holds the directory, and the start comes to its end.
        assert asyncio.run(serve(node_config(tmp_path), tell_to_stop)) == 0
