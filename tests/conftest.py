"""Property tests run the same examples everywhere, and are not timed one by one.

``DOHLE_EXPLORE=1`` draws new examples (``make explore``): what it finds becomes an ``@example`` of
its test. ``DOHLE_FAST=1`` draws fewer (``make test-fast``).
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


#: Where Hypothesis and its plugin of pytest keep what ``@settings`` says of a function.
_OF_FUNCTION = "_hypothesis_internal_use_settings"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let tests that say how many examples they take, take fewer where it must be fast."""
    if "DOHLE_FAST" not in os.environ:
        return
    for item in items:
        if isinstance(item, pytest.Function):
            _take_fewer(item.cls, "settings")
            _take_fewer(getattr(item.obj, "__func__", item.obj), _OF_FUNCTION)


def _take_fewer(of: object, name: str) -> None:
    """Bound the examples of a model or of a function."""
    chosen = getattr(of, name, None)
    if isinstance(chosen, settings) and chosen.max_examples > _FAST_EXAMPLES_MAX:
        setattr(of, name, settings(chosen, max_examples=_FAST_EXAMPLES_MAX))
