"""How the metadata topic is created (T9)."""

from __future__ import annotations

import pytest

from dohle.core.config.static import SINGLE_NODE, BrokerConfig
from dohle.server.tier.settings import TierSettings


@pytest.mark.parametrize(("replicas", "in_sync"), [(1, None), (2, None), (3, "2"), (5, "2")])
def test_its_records_are_on_two_disks_where_it_has_three_replicas(
    replicas: int, in_sync: str | None
) -> None:
    """T27.2: all replicas delete a segment when one record says that it is remote."""
    config, _ = BrokerConfig.from_properties(
        {
            **SINGLE_NODE,
            "remote.log.storage.system.enable": "true",
            "rsm.config.url": "/store",
            "rlmm.config.remote.log.metadata.topic.replication.factor": str(replicas),
        }
    )
    settings = TierSettings.of(config)
    assert settings is not None
    assert settings.metadata_configs.get("min.insync.replicas") == in_sync
    assert settings.metadata_configs["flush.messages"] == "1"
    assert settings.metadata_configs["cleanup.policy"] == "delete"
    assert settings.metadata_configs["retention.ms"] == "-1"
    assert settings.metadata_configs["remote.storage.enable"] == "false"
