"""The broker under test: ``python -m bench.run_broker FOLDER [NAME=VALUE ...]``.

It runs as ``dohle start`` does, on a free port of 127.0.0.1, which it prints when it serves. It
ends at SIGTERM, or when its standard input is closed: so it never outlives the benchmark.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from bench.pacing import unpaced_listeners
from dohle.core.config.static import SINGLE_NODE, BrokerConfig
from dohle.server.node import Node
from dohle.server.run import run_loop, serve


def main(folder: str, *settings: str) -> int:
    """Serve until told to stop."""
    properties = {
        **SINGLE_NODE,
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": folder,
        **dict(setting.split("=", 1) for setting in settings),
    }
    config, _ = BrokerConfig.from_properties(properties)
    return run_loop(serve(config, _on_started))


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
