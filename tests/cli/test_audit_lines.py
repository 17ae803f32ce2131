"""The audit log of a node that was started by a command."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SHOW = """
import logging, sys
from dohle.cli.log_lines import start_logging
start_logging(level=sys.argv[1], as_json=False, requests=False)
print(logging.getLevelName(logging.getLogger("kafka.authorizer.logger").getEffectiveLevel()))
"""


@pytest.mark.parametrize(
    ("level", "audit"), [("info", "INFO"), ("debug", "INFO"), ("error", "ERROR")]
)
def test_denials_are_told_unless_the_log_is_quieter_and_permissions_are_not(
    level: str, audit: str
) -> None:
    """Line "Audit log" of section 6: denied INFO, allowed DEBUG; Kafka has it at INFO."""
    command = [sys.executable, "-c", _SHOW, level]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == audit
