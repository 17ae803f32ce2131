"""``python -m dohle.testing.simulation --seed N [--trace]``: run seeds, and tell what came of them.

The same seed gives the same run, byte for byte. Exit code 1 says that something was found.
"""

from __future__ import annotations

import argparse
import logging
import sys

from dohle.testing.simulation.run import ACTIVE_S, Result, Run


def main() -> int:
    """Run as the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m dohle.testing.simulation")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, one after the other")
    parser.add_argument("--seconds", type=float, default=ACTIVE_S, help="how long faults strike")
    parser.add_argument("--trace", action="store_true", help="tell of every event")
    args = parser.parse_args()
    logging.basicConfig(level=logging.DEBUG if args.trace else logging.CRITICAL + 1)
    results: list[Result] = []
    for seed in range(args.seed, args.seed + args.seeds):
        result = Run(seed, active_s=args.seconds, trace=_print if args.trace else None).go()
        results.append(result)
        _print(str(result))
        for problem in result.problems:
            _print(f"  {problem}")
        if result.problems:
            _print(f"  to repeat: {result.command}")
    virtual_s, real_s = sum(r.virtual_s for r in results), sum(r.real_s for r in results)
    failed = [result.seed for result in results if result.problems]
    _print(
        f"{len(results)} seeds, {virtual_s:.0f} s of virtual time in {real_s:.1f} s: "
        f"{virtual_s / real_s:.0f} times as fast; {len(failed)} failed {failed or ''}"
    )
    return 1 if failed else 0


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
