"""What tests of listeners that want to know who comes share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.security.authority import Authority


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Somebody else's authority."""
    folder: Path = tmp_path_factory.mktemp("stranger")
    return Authority(folder, "stranger")
