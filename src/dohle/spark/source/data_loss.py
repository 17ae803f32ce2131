"""What happens when records that should be read no longer exist: ``failOnDataLoss``."""

from __future__ import annotations

import logging
from collections.abc import Iterable

_log = logging.getLogger("dohle.spark")


class DataLoss(RuntimeError):
    """Records that the query should have read no longer exist."""


def report_losses(losses: Iterable[str], *, fail: bool) -> None:
    """Raise an error about lost records, or log a warning and let the query continue."""
    found = tuple(losses)
    if not found:
        return
    if fail:
        raise DataLoss(
            f"{'; '.join(found)}. Set the option failOnDataLoss to false to continue with what "
            "is left."
        )
    for each in found:
        _log.warning("%s; the query continues, since failOnDataLoss is false", each)
