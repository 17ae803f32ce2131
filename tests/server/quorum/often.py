"""Nodes that make snapshots often."""

from __future__ import annotations

from pathlib import Path

OFTEN = {"metadata.log.max.record.bytes.between.snapshots": "1000"}


def snapshots(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "data" / "__cluster_metadata-0").glob("*.checkpoint"))
