"""What happens when records that should be read are gone: ``failOnDataLoss``."""

from __future__ import annotations

import logging
from collections.abc import Iterable

_log = logging.getLogger("dohle.spark")


class DataLoss(RuntimeError):
    """Records that the query should have read are not there any more."""


def report_losses(losses: Iterable[str], *, fail: bool) -> None:
    """Raise what was lost, or warn of it and let the query go on."""
    found = tuple(losses)
    if not found:
        return
    if fail:
        raise DataLoss(
            f"{'; '.join(found)}. Set the option failOnDataLoss to false to go on with what is "
            "left."
        )
    for each in found:
        _log.warning("%s; the query goes on, since failOnDataLoss is false", each)
