"""The whole command, with real nodes: it ends with a verdict and a page."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

DEADLINE_S = 240.0
COMMAND = [sys.executable, "-m", "dohle.testing.check"]


def await_a_kill(progress: IO[str]) -> list[str]:
    """Read until a fault is over and transactions were committed before or after it."""
    lines = []
    for line in progress:
        lines.append(line)
        found = re.search(r"(\d+) transactions committed, (\d+) faults; (.*)", line)
        if found and int(found[1]) and int(found[2]) and found[3] == "all is well":
            return lines
    raise AssertionError("".join(lines))


@pytest.mark.long
@pytest.mark.timeout(300)
def test_nodes_that_are_killed_lose_nothing_and_the_report_says_so(tmp_path: Path) -> None:
    """Ctrl-C ends the round: it is judged, and the report is written."""
    out = tmp_path / "report"
    options = ["--minutes", "3", "--rate", "60", "--faults", "kill", "--out", str(out)]
    with subprocess.Popen(
        [*COMMAND, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        lines = await_a_kill(process.stderr)
        process.send_signal(signal.SIGINT)
        said, rest = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, "".join(lines) + rest + said
    verdict = json.loads((out / "verdict.json").read_text())
    assert verdict["valid"]
    assert verdict["counts"]["acknowledged"] > 0
    assert verdict["counts"]["read"] > 0
    assert {each["kind"] for one in verdict["rounds"] for each in one["struck"]} == {"kill"}
    assert "It was interrupted; what is told here is all that was run." in verdict["notes"]
    late = {each["version"]: each["violations"] for each in verdict["lateEndTxn"]}
    assert late.keys() == {1, 2}
    assert late[2] == []
    page = (out / "report.html").read_text()
    assert "<svg" in page
    assert "Valid: what was acknowledged is there" in page
    assert "http" not in page, "it needs nothing from elsewhere"
    again = [*COMMAND, "--judge", str(out / "history.jsonl"), "--out", str(tmp_path / "again")]
    judged = subprocess.run(again, capture_output=True, text=True, timeout=DEADLINE_S)
    assert judged.returncode == 0, judged.stdout
