"""``python -m bench [--quick] [--json] [codec|log|broker|...]``: all sections, or some of them.

A full run is added to the history in bench/results; one that is quick or prints JSON is not.
"""

from __future__ import annotations

import argparse
from importlib import import_module

from bench.history import FILE_NAME, FOLDER
from bench.report import keep, show

SECTIONS = {
    "codec": "bench.codec",
    "log": "bench.log",
    "broker": "bench.broker.section",
    "coordinators": "bench.coordinators.section",
    "columnar": "bench.columnar",
    "cleaner": "bench.cleaner",
    "quorum": "bench.quorum",
}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("sections", nargs="*", choices=[[], *SECTIONS], metavar="|".join(SECTIONS))
    parser.add_argument("--quick", action="store_true", help="fewer rounds, rougher figures")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--strict", action="store_true", help="exit with 1 if a figure to be reached was missed"
    )
    options = parser.parse_args()
    rows = []
    for section in options.sections or SECTIONS:
        rows += import_module(SECTIONS[section]).run(quick=options.quick)
    show(rows, as_json=options.json)
    if not (options.quick or options.json):
        keep(rows, FOLDER / FILE_NAME)
    return int(options.strict and any("MISSED" in row.verdict for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
