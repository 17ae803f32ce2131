"""Property tests run the same examples everywhere, and are not timed one by one."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("replication", deadline=None, derandomize=True, database=None)
settings.load_profile("replication")
