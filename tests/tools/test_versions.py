"""``tools/versions.py``: which Pythons are found."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from versions import find_python


def fake_python(path: Path, version: str) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho {version}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No Python but our own: nothing on the PATH, nothing of pyenv's."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    return tmp_path


def test_our_own_python_serves_its_version(nowhere: Path) -> None:
    assert find_python("{}.{}".format(*sys.version_info)) == Path(sys.executable)


def test_a_version_that_is_nowhere_is_not_found(nowhere: Path) -> None:
    assert find_python("3.99") is None


def test_pyenv_and_the_path_are_looked_through(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{nowhere}/bin:/bin:/usr/bin")
    of_pyenv = fake_python(nowhere / "pyenv" / "versions" / "3.99.1" / "bin" / "python", "3.99")
    assert find_python("3.99") == of_pyenv
    on_path = fake_python(nowhere / "bin" / "python3.99", "3.99")
    assert find_python("3.99") == on_path


def test_a_shim_that_runs_another_version_is_passed_over(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{nowhere}/bin:/bin:/usr/bin")
    fake_python(nowhere / "bin" / "python3.99", "3.11")
    assert find_python("3.99") is None
