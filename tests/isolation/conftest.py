"""At the end of a run: what each attack did at worst."""

from __future__ import annotations

import pytest

from tests.isolation.harness import SUFFERED, table


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell the worst of all tries, also of those that were tried again and passed."""
    if SUFFERED:
        terminalreporter.section("what the victim suffered, the worst of all tries")
        for line in table():
            terminalreporter.line(line)
