"""The server-side assignors by the names that ``group.consumer.assignors`` and members use."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from dohle.groups.assignors.assignment import Assignor
from dohle.groups.assignors.range import assign_ranges
from dohle.groups.assignors.uniform import assign_uniformly

UNIFORM: Final = "uniform"
RANGE: Final = "range"

ASSIGNORS: Mapping[str, Assignor] = MappingProxyType(
    {UNIFORM: assign_uniformly, RANGE: assign_ranges}
)
