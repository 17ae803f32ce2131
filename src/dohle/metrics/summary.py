"""Quantiles in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Sequence

from dohle.metrics.exposition import Number
from dohle.metrics.samples import QUANTILE_LABELS, quantiles


def summary(name: str, doc: str, values: Sequence[float], count: Number) -> str:
    """Write the quantiles of samples of equal weight, without labels."""
    found = zip(QUANTILE_LABELS, quantiles(values, [1.0] * len(values)), strict=True)
    lines = [f'{name}{{quantile="{share}"}} {value:.6g}\n' for share, value in found]
    return f"# HELP {name} {doc}\n# TYPE {name} summary\n{''.join(lines)}{name}_count {count}\n"
