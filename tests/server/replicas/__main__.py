"""``python -m tests.server.replicas --seeds 40-2039``: run seeds of a cluster, and tell of them.

The same seed gives the same run. Exit code 1 says that something was found.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time

from tests.server.replicas.failovers import Failovers


def main() -> int:
    """Run as the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m tests.server.replicas")
    parser.add_argument("--seeds", default="0-9", help="the first and the last, or one")
    parser.add_argument("--trace", action="store_true", help="tell of every event")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO if args.trace else logging.CRITICAL + 1)
    first, _, last = args.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    began, failed = time.process_time(), []
    for seed in seeds:
        outcome = Failovers.drawn(seed, trace=_print if args.trace else None).go()
        if outcome.problems:
            failed.append(seed)
            _print("\n  ".join([f"seed {seed}:", *outcome.problems]))
    each_s = (time.process_time() - began) / len(seeds)
    _print(f"{len(seeds)} seeds, {each_s:.2f} s of CPU each; {len(failed)} failed {failed or ''}")
    return 1 if failed else 0


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
