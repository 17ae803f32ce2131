"""The broker under test: ``python -m bench.run_broker FOLDER [NAME=VALUE ...]``.

It runs as ``dohle start`` does, on a free port of 127.0.0.1, which it prints when it serves. It
ends at SIGTERM, or when its standard input is closed: so it never outlives the benchmark.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence

from bench.pacing import unpaced_listeners
from dohle.core.config.static import SINGLE_NODE, BrokerConfig
from dohle.server.node import Node
from dohle.server.run import run_loop, serve


def main(folder: str, *settings: str) -> int:
    """Serve until told to stop."""
    return run(folder, settings, lambda node: None)


def run(folder: str, settings: Sequence[str], prepare: Callable[[Node], None]) -> int:
    """Serve until told to stop; the node is prepared before anybody is told where it is."""
    properties = {
        **SINGLE_NODE,
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": folder,
        **dict(setting.split("=", 1) for setting in settings),
    }
    config, _ = BrokerConfig.from_properties(properties)

    def on_started(node: Node) -> None:
        prepare(node)
        _on_started(node)

    return run_loop(serve(config, on_started))


def _on_started(node: Node) -> None:
    loop, stdin = asyncio.get_running_loop(), sys.stdin.fileno()

    def abandoned() -> None:
        loop.remove_reader(stdin)
        os.kill(os.getpid(), signal.SIGTERM)

    loop.add_reader(stdin, abandoned)
    unpaced_listeners()
    print(node.bootstrap, flush=True)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
