from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_readmes_example_runs_as_it_stands(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        done = subprocess.run(
            [sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == "0\n"


def test_every_file_the_documents_link_to_is_there() -> None:
    for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_every_path_the_architecture_names_is_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    rooms = ROOT / "src/dohle"
    for name in re.findall(r"`((?:core|protocol|records|storage|testing)/\w+\.py)`", text):
        assert (rooms / name).exists(), name
