"""``python -m tests.interop.serve key=value…``: a broker in a process of its own, to be killed."""

from __future__ import annotations

import logging
import sys

from dohle.core.static_config import SINGLE_NODE, BrokerConfig
from dohle.server.node import Node
from dohle.server.run import run_loop, serve


def main() -> int:
    logging.basicConfig(format="%(levelname)s %(name)s %(message)s", level=logging.INFO)
    given = dict(argument.split("=", 1) for argument in sys.argv[1:])
    config, _ = BrokerConfig.from_properties({**SINGLE_NODE, **given})

    def started(node: Node) -> None:
        sys.stdout.write(f"Kafka Server started {node.bootstrap}\n")
        sys.stdout.flush()

    return run_loop(serve(config, started))


if __name__ == "__main__":
    sys.exit(main())
