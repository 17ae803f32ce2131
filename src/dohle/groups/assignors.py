"""The server-side assignors by the names that ``group.consumer.assignors`` and members use."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dohle.groups.assignment import Assignor
from dohle.groups.range_assignor import assign_ranges
from dohle.groups.uniform_assignor import assign_uniformly

ASSIGNORS: Mapping[str, Assignor] = MappingProxyType(
    {"uniform": assign_uniformly, "range": assign_ranges}
)
