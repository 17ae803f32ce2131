"""``python -m bench.compare BEFORE AFTER [--rounds 3] [--quick] [--markdown FILE] [sections ...]``.

Measures two work trees in turns: BEFORE, AFTER, BEFORE, AFTER, ... each with the Python of its own
``.venv``. Sections are those of ``python -m bench``, and parts of ``bench.versus`` and
``bench.cluster`` with dohle alone (``versus/replay``, ``cluster/replay``; ``versus`` means all of
its own). Exits with 1 if a case of AFTER is worse than 0.95 of BEFORE beyond the noise of the
rounds.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.__main__ import SECTIONS
from bench.cluster.turns import PARTS as CLUSTER_PARTS
from bench.compare.trees import NotComparable, Tree
from bench.compare.verdict import COLUMNS, Case, Key, Readings, Verdict, markdown, put_together

_VERSUS = "versus"
_PARTS = [
    f"{_VERSUS}/{name}"
    for name in ("librdkafka", "replay", "connections", "coordinators", "footprint")
]
_CLUSTER = "cluster"
_OTHER_PARTS = [
    *(f"{_VERSUS}/{name}" for name in ("latency", "partitions")),
    *(f"{_CLUSTER}/{name}" for name in CLUSTER_PARTS.values()),
]


def main() -> int:
    """Measure, print, and judge."""
    options = options_of(sys.argv[1:])
    # SIGTERM cleans up as an error does: it ends the child processes and removes the folders.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    cases: list[Case] = []
    left: list[Key] = []
    try:
        trees = Tree.open(options.before), Tree.open(options.after)
        for section in _chosen(options.sections):
            found, others = _measure(trees, section, options)
            cases += found
            left += others
            if options.markdown is not None:
                options.markdown.write_text(markdown(cases, left))
    except NotComparable as reason:
        print(f"bench.compare: {reason}", file=sys.stderr)
        return 2
    _show(cases, left)
    return int(any(case.verdict is Verdict.WORSE for case in cases))


def _chosen(sections: list[str]) -> list[str]:
    found: dict[str, None] = {}
    for section in sections or [*SECTIONS, _VERSUS]:
        found |= dict.fromkeys(_PARTS if section == _VERSUS else [section])
    return list(found)


def _measure(
    trees: tuple[Tree, Tree], section: str, options: argparse.Namespace
) -> tuple[list[Case], list[Key]]:
    """Let both trees take turns at a section."""
    runs: tuple[list[Readings], list[Readings]] = ([], [])
    for number in range(options.rounds):
        for tree, which, found in zip(trees, ("before", "after"), runs, strict=True):
            begun = time.monotonic()
            found.append(_run(tree, section, quick=options.quick))
            took_s = time.monotonic() - begun
            line = f"{section}: round {number + 1} of {options.rounds}, {which}, {took_s:.1f} s"
            print(line, file=sys.stderr, flush=True)
    cases, left = put_together(*runs)
    if not cases:
        raise NotComparable(f"the trees have no case of {section} in common")
    return cases, left


def _run(tree: Tree, section: str, *, quick: bool) -> Readings:
    kind, _, name = section.rpartition("/")
    if kind == _VERSUS:
        return tree.run_part(name, quick=quick)
    if kind == _CLUSTER:
        return tree.run_cluster_part(name, quick=quick)
    return tree.run_section(section, quick=quick)


def _show(cases: list[Case], left: list[Key]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*COLUMNS)
    for case in cases:
        table.add_row(*case.cells)
    console = Console(width=160)
    console.print(table)
    for key in left:
        console.print(f"not in both trees: {key.section}: {key.case} [{key.unit}]", markup=False)
    worse = sum(case.verdict is Verdict.WORSE for case in cases)
    unsure = sum(case.verdict is Verdict.UNSURE for case in cases)
    console.print(f"{len(cases)} cases: {worse} worse, {unsure} below 0.95 but within the noise")


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; sections may come before and after options."""
    parser = argparse.ArgumentParser(
        prog="bench.compare", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    known = [*SECTIONS, _VERSUS, *_PARTS, *_OTHER_PARTS]
    parser.add_argument("before", type=Path, help="a work tree with a .venv")
    parser.add_argument("after", type=Path, help="another one")
    parser.add_argument(
        "sections",
        nargs="*",
        choices=[[], *known],
        metavar="section",
        help=f"{', '.join(known)}; default: all of {', '.join(SECTIONS)} and {_VERSUS}",
    )
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="less of it, for rougher figures")
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="write the table there after every section"
    )
    options = parser.parse_intermixed_args(arguments)
    if options.rounds < 1:
        parser.error("at least one round is needed")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
