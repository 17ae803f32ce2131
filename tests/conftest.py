"""Property tests run the same examples everywhere, and are not timed one by one.

``DOHLE_EXPLORE=1`` draws new examples, and all that a test wants (``make explore``): what it finds
becomes an ``@example`` of its test. ``DOHLE_FAST=1`` draws fewer (``make test-fast``).
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import settings

from tests.interrupts import let_children_be_interrupted

let_children_be_interrupted()

# What Spark runs here lives for seconds: its Java shall be quick to start rather than quick to run.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto")


class Examples(NamedTuple):
    """How many examples a property has: unless it says so itself, and at most."""

    usual: int
    most: int


def _examples() -> Examples:
    if "DOHLE_FAST" in os.environ:
        return Examples(20, 20)
    if "DOHLE_EXPLORE" in os.environ:
        return Examples(100, 10_000)
    return Examples(50, 100)


_EXAMPLES = _examples()

settings.register_profile(
    "dohle",
    deadline=None,
    derandomize="DOHLE_EXPLORE" not in os.environ,
    database=None,
    max_examples=_EXAMPLES.usual,
)
settings.load_profile("dohle")


#: What a module says that has to be run by one worker: that it has the Spark of all, or its group.
_HAS_SPARK = re.compile(r"^def test_\w+\([^)]*\bspark: SparkSession", re.MULTILINE)
_GROUP = re.compile(r'xdist_group\("([\w-]+)"\)')

#: Where Hypothesis and its plugin of pytest keep what ``@settings`` says of a function.
_OF_FUNCTION = "_hypothesis_internal_use_settings"


@cache
def _group_of(module: Path) -> str | None:
    """Return by which name one worker runs all tests of a module, if it does."""
    text = module.read_text()
    if _HAS_SPARK.search(text):
        return "spark"
    found = _GROUP.search(text)
    return None if found is None else found[1]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep groups together.

    pytest-xdist 3.8 writes the groups into ids where pytest 9.2 does not look for them: each worker
    had a Spark of its own.
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling

    scheduler = LoadGroupScheduling(config, log)
    scheduler._split_scope = lambda test: _group_of(config.rootpath / test.split("::")[0]) or test
    return scheduler


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what one worker has to run by itself; bound how many examples there are.

    A group takes minutes: the other workers would wait for it in the end.
    """
    items.sort(key=lambda item: _group_of(item.path) is None)
    for item in items:
        if isinstance(item, pytest.Function):
            _take_fewer(item.cls, "settings")
            _take_fewer(getattr(item.obj, "__func__", item.obj), _OF_FUNCTION)


def _take_fewer(of: object, name: str) -> None:
    """Bound the examples of a model or of a function."""
    chosen = getattr(of, name, None)
    if isinstance(chosen, settings) and chosen.max_examples > _EXAMPLES.most:
        setattr(of, name, settings(chosen, max_examples=_EXAMPLES.most))
