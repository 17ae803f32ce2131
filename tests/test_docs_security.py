"""``docs/security.md`` tells the truth: its five minutes are run as they are written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from dohle.cli.free_ports import free_ports
from tests.cli.running import Started

ROOT = Path(__file__).parent.parent
_START = "dohle start --config server.properties\n"


def blocks() -> list[str]:
    """Return the blocks of that section, one after the other, without their margin."""
    text = (ROOT / "docs" / "security.md").read_text()
    _, _, section = text.partition("## TLS and passwords in five minutes\n")
    section = section.partition("\n## ")[0]
    found = re.findall(r"(?:^    .*\n)+", section, re.MULTILINE)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in found]


def run(script: str, cwd: Path) -> str:
    """Run a script that must do well, and return what it prints."""
    dohle = f'dohle() {{ "{sys.executable}" -m dohle "$@"; }}\nset -e -o pipefail\n'
    done = subprocess.run(
        ["bash", "-c", dohle + script],
        cwd=cwd,
        env={name: text for name, text in os.environ.items() if not name.startswith("DOHLE_")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_five_minutes_run_as_written(tmp_path: Path) -> None:
    port = str(free_ports(1)[0])
    certificates, properties, formatting, admin, alice, *python = [
        block.replace("9094", port) for block in blocks()
    ]
    run(certificates, tmp_path)
    (tmp_path / "server.properties").write_text(properties)
    assert formatting.endswith(_START)
    run(formatting.removesuffix(_START), tmp_path)
    arguments = ("--config", "server.properties", "-X", "metrics.listener=127.0.0.1:0")
    with Started(*arguments, cwd=tmp_path, listener=None):
        assert "User:alice" in run(admin, tmp_path)
        run(alice, tmp_path)
        mine = (
            "\n".join(python)
            .replace("…", "alice-secret")
            .replace(
                "producer = Producer", "import asyncio\n\nasync def main():\n  producer = Producer"
            )
        )
        more = "  async with producer:\n    print((await producer.send('orders', b'2')).offset)\n"
        code = f"{mine}{more}asyncio.run(main())\n"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.stdout == "1\n", done.stderr
