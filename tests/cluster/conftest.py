from __future__ import annotations

import importlib
import warnings

# kafka-python reads its schemas by a function that the standard library deprecates.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    importlib.import_module("kafka")
    importlib.import_module("kafka.admin")
