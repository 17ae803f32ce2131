"""docs/client.md: every example runs as it stands, in order, on one broker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from dohle.testing import Broker

ADDRESS = "127.0.0.1:9092"
PAGE = Path(__file__).parent.parent / "docs" / "client.md"
#: What the examples print, one after the other.
PRINTED = [
    "orders-0 at 0\n1000 more\n",
    "499502 cups\n",
    "orders-0: 1001 up to 1000\n1001 rows\n",
    "[(('source', b'till-1'),)] 1\n",
    "both, or none\n",
    "hello\n",
    "['deposits', 'greetings', 'orders', 'payments', 'receipts', 'withdrawals']\n",
    "unknown setting linger.msec: did you mean linger.ms?\n",
]


def test_the_examples_run_as_they_stand() -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    with Broker({"group.initial.rebalance.delay.ms": 0}) as broker:
        printed = [output_of(example.replace(ADDRESS, broker.bootstrap)) for example in examples]
    assert printed == PRINTED


def output_of(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
