"""The same two brokers as in ``tests/jvm``: what a test expects of dohle, Apache Kafka does too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jvm.conftest import bootstrap, classpath, jvm, new_name
from tests.jvm.kept import Unavailable
from tests.node import packages

__all__ = ["bootstrap", "classpath", "jvm", "modules", "new_name"]


@pytest.fixture(scope="session")
def modules() -> Path:
    try:
        return packages.modules()
    except Unavailable as reason:
        pytest.exit(f"tests/node: {reason}", returncode=1)
