"""Which of the two protocols of transactions a broker has."""

from __future__ import annotations

from dohle.client import Cluster
from dohle.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_UPGRADE, _SAFE_DOWNGRADE = 1, 2


async def set_transaction_version(bootstrap: str, level: int) -> None:
    update = FeatureUpdateKey(
        feature="transaction.version",
        max_version_level=level,
        upgrade_type=_UPGRADE if level == 2 else _SAFE_DOWNGRADE,
    )
    async with Cluster(bootstrap) as cluster:
        answer = await (await cluster.any_connection()).request(
            UpdateFeaturesRequest(feature_updates=(update,)), UpdateFeaturesResponse
        )
        assert answer.error_code == 0, answer.error_message
