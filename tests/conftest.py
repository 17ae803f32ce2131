"""Property tests run the same examples everywhere, and are not timed one by one.

``DOHLE_EXPLORE=1`` draws new examples: what it finds becomes an ``@example`` of its test.
"""

from __future__ import annotations

import os

from hypothesis import settings

from tests.interrupts import let_children_be_interrupted

let_children_be_interrupted()

settings.register_profile(
    "dohle", deadline=None, derandomize="DOHLE_EXPLORE" not in os.environ, database=None
)
settings.load_profile("dohle")
