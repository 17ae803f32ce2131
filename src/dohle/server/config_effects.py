"""What the log says of configs that do nothing here: each once, when somebody sets it.

Nobody is refused for one, so the operator has to hear of it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from dohle.core.config.broker import BROKER_CONFIGS
from dohle.core.config.client_metrics import CLIENT_METRICS_CONFIGS
from dohle.core.config.definition import NO_EFFECT, ConfigKey
from dohle.core.config.group import GROUP_CONFIGS
from dohle.core.config.static import BrokerConfig, base_name
from dohle.core.config.topic import TOPIC_CONFIGS
from dohle.metadata.delta import ConfigDelta
from dohle.metadata.image import ClusterImage, ResourceType

logger = logging.getLogger("dohle.server.configs")

_TABLES: Final[Mapping[int, Mapping[str, ConfigKey]]] = {
    ResourceType.TOPIC: TOPIC_CONFIGS,
    ResourceType.BROKER: BROKER_CONFIGS,
    ResourceType.GROUP: GROUP_CONFIGS,
    ResourceType.CLIENT_METRICS: CLIENT_METRICS_CONFIGS,
}


class ConfigEffects:
    """Remembers what was told in this run."""

    def __init__(self) -> None:
        # Names of our own tables only, so it cannot grow beyond them.
        self._told: set[str] = set()

    def started(self, config: BrokerConfig, image: ClusterImage) -> None:
        """Tell what the properties file and the metadata log hold."""
        self._tell(ResourceType.BROKER, config.texts)
        for resource, configs in image.configs.items():
            self._tell(resource.type, configs)

    def changed(self, changes: Iterable[ConfigDelta]) -> None:
        """Tell what was altered."""
        for resource, before, after in changes:
            self._tell(resource.type, {k: v for k, v in after.items() if before.get(k) != v})

    def _tell(self, kind: int, configs: Mapping[str, str]) -> None:
        table = _TABLES.get(kind, {})
        for name in configs:
            key = table.get(base_name(name))
            if key is not None and key.no_effect and key.name not in self._told:
                self._told.add(key.name)
                logger.info("%s: %s, because %s", NO_EFFECT, key.name, key.no_effect)
