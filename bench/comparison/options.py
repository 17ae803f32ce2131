"""The options that all comparisons have: how often, how thoroughly, and where results are kept."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.comparison.results import Report


def parse_options(
    parser: argparse.ArgumentParser, report: Report, *, rounds: int, rounds_quick: int
) -> argparse.Namespace:
    """Add the options to those that the parser has, and read the command line."""
    parser.add_argument("--rounds", type=int, help=f"default: {rounds}, quick: {rounds_quick}")
    parser.add_argument("--quick", action="store_true", help="less of it, for rougher figures")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help=f"where results are kept, with .md and .svg beside; default: {report.path.name} of"
        " bench/results, and nowhere if it is quick",
    )
    parser.add_argument(
        "--strict", action="store_true", help="exit with 1 if a figure to be reached was missed"
    )
    options = parser.parse_args()
    options.rounds = options.rounds or (rounds_quick if options.quick else rounds)
    if options.json is None and not options.quick:
        options.json = report.path
    return options
