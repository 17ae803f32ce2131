"""A work tree with its own ``.venv``, and what is measured in it.

Sections of ``python -m bench`` run as they are in each tree, by its own Python. Parts of
``bench.versus`` and ``bench.cluster`` are loads of this tree, with servers of the other: only
``dohle start`` and Kafka's protocol have to be there.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.cluster.nodes import dohle as dohle_cluster
from bench.cluster.turns import find_part as find_cluster_part
from bench.compare.verdict import Key, Reading, Readings
from bench.comparison.warm_up import QUICK, Limits
from bench.report import stable
from bench.versus.servers import dohle
from bench.versus.taking_turns import Pace, Part, S, Skipped, Turn, take_turn
from bench.versus.turns import find_part

#: Sections that had another name in older trees, by the file that tells a newer one.
_OLD_NAMES = {"columnar": ("bench/columnar.py", "spark-decode")}
#: Peers that no change of dohle can make faster or slower.
_FOREIGN_PEERS = {
    "a synced file",
    "bare frames",
    "kafka-python",
    "kio",
    "pread",
    "read + crc",
    "recv → write",
    "sendfile",
    "write + crc",
}
#: Nothing is compiled while dohle runs: the first seconds only fill caches.
_WARM_UP = Limits(least_s=6.0, most_s=18.0, window_s=2.0)
_SECTION_S_MAX = 3_600
_END_S_MAX = 60


class NotComparable(Exception):
    """A tree cannot be measured; says why."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A work tree."""

    path: Path

    @classmethod
    def open(cls, path: Path) -> Tree:
        """See that there is a tree whose Python has the dohle of that tree."""
        found = cls(path.resolve())
        if not found.python.exists():
            raise NotComparable(f"{path} has no .venv/bin/python; run `make test` there once")
        done = subprocess.run(
            [str(found.python), "-c", "import dohle; print(dohle.__file__)"],
            **found._surroundings(),
            capture_output=True,
            check=False,
        )
        imported = done.stdout.strip()
        if done.returncode or not Path(imported).resolve().is_relative_to(found.path):
            raise NotComparable(
                f"the Python of {path} has {imported or 'no dohle'}, not the dohle of that tree:"
                " install it there with `pip install --editable .`"
            )
        return found

    @property
    def python(self) -> Path:
        return self.path / ".venv" / "bin" / "python"

    def _surroundings(self) -> dict[str, Any]:
        # Users have bytecode: a start does not compile everything anew.
        dropped = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
        kept = {name: value for name, value in os.environ.items() if name not in dropped}
        return {"cwd": self.path, "env": kept, "text": True}

    def section_name(self, section: str) -> str:
        """Return what a section of ``python -m bench`` is called in this tree."""
        marker, old_name = _OLD_NAMES.get(section, ("", section))
        return section if (self.path / marker).exists() else old_name

    def run_section(self, section: str, *, quick: bool) -> Readings:
        """Run a section of ``python -m bench`` in this tree."""
        command = [str(self.python), "-m", "bench", "--json", *(["--quick"] if quick else [])]
        process = subprocess.Popen(
            [*command, self.section_name(section)], stdout=subprocess.PIPE, **self._surroundings()
        )
        try:
            out, _ = process.communicate(timeout=_SECTION_S_MAX)
        except BaseException:
            # Asked to end, it ends its own processes and removes its folders.
            process.terminate()
            try:
                process.wait(_END_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            raise
        if process.returncode:
            raise NotComparable(f"`{' '.join(command)} {section}` failed in {self.path}")
        return read_rows(json.loads(out))

    def run_part(self, name: str, *, quick: bool) -> Readings:
        """Load this tree's dohle with a part of ``bench.versus``."""
        part = find_part(name)
        with dohle(part.SETTINGS, str(self.python)) as server:
            return _take_turn(part, server, quick=quick)

    def run_cluster_part(self, name: str, *, quick: bool) -> Readings:
        """Load three nodes of this tree's dohle with a part of ``bench.cluster``."""
        part = find_cluster_part(name)
        with dohle_cluster(part.SETTINGS, str(self.python)) as cluster:
            return _take_turn(part, cluster, quick=quick)


def _take_turn(part: Part[S], server: S, *, quick: bool) -> Readings:
    pace = Pace(quick, QUICK if quick else _WARM_UP)
    try:
        figures = take_turn(part, Turn(server, pace)).figures
    except Skipped as reason:
        raise NotComparable(f"{part.TITLE}: {reason}") from reason
    return {
        Key(part.TITLE, one.case, one.measure.unit, one.measure.more_is_better): Reading(one.value)
        for one in figures
    }


def read_rows(rows: Iterable[Mapping[str, Any]]) -> Readings:
    """Take the readings from what ``python -m bench --json`` prints.

    A case with several peers has a row for each; the first is taken.
    """
    found: Readings = {}
    for row in rows:
        key = Key(row["section"], stable(row["case"]), row["unit"])
        beside_peer = row["ours"] / row["theirs"] if row["peer"] in _FOREIGN_PEERS else None
        found.setdefault(key, Reading(row["ours"], beside_peer))
    return found
