"""Property tests run the same examples everywhere, and are not timed one by one."""

from __future__ import annotations

import importlib
import warnings

from hypothesis import settings

settings.register_profile("records", deadline=None, derandomize=True, database=None)
settings.load_profile("records")

# kafka-python reads its schemas by a function that the standard library deprecates.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    importlib.import_module("kafka")
