"""Property tests run the same examples everywhere, and are not timed one by one.

``DOHLE_EXPLORE=1`` draws new examples (``make explore``): what it finds becomes an ``@example`` of
its test. ``DOHLE_FAST=1`` draws fewer, where a test does not say how many (``make test-fast``).
"""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from tests.interrupts import let_children_be_interrupted

let_children_be_interrupted()

_FAST_EXAMPLES_MAX = 20

settings.register_profile(
    "dohle",
    deadline=None,
    derandomize="DOHLE_EXPLORE" not in os.environ,
    database=None,
    max_examples=_FAST_EXAMPLES_MAX if "DOHLE_FAST" in os.environ else 100,
)
settings.load_profile("dohle")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let models, too, which say how many examples they take, take fewer where it must be fast."""
    if "DOHLE_FAST" not in os.environ:
        return
    for item in items:
        case = item.cls if isinstance(item, pytest.Function) else None
        chosen = getattr(case, "settings", None)
        if case and isinstance(chosen, settings) and chosen.max_examples > _FAST_EXAMPLES_MAX:
            case.settings = settings(chosen, max_examples=_FAST_EXAMPLES_MAX)
