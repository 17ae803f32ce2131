"""A history that was written down is judged again, by the same checks."""

from __future__ import annotations

from pathlib import Path

from dohle.testing.check.record import read_rounds, write_json
from dohle.testing.checking.checks import check


def judge(history: Path, out: Path) -> list[str]:
    """Return what is wrong with it, and write that to ``verdict.json``."""
    rounds = read_rounds(history)
    found = [
        f"round {number}: {violation}"
        for number, each in rounds.items()
        for violation in check(each)
    ]
    out.mkdir(parents=True, exist_ok=True)
    records = sum(len(each.sends) for each in rounds.values())
    write_json(
        out / "verdict.json",
        {"valid": not found, "rounds": len(rounds), "records": records, "anomalies": found},
    )
    return found
