"""What the log says of configs that do nothing here: each once, when somebody sets it.

Nobody is refused for one, so the operator has to hear of it. ``cleanup.policy=compact`` is told for
each topic: without a cleaner the topic grows for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from dohle.core.config.broker import BROKER_CONFIGS
from dohle.core.config.client_metrics import CLIENT_METRICS_CONFIGS
from dohle.core.config.definition import NO_EFFECT, ConfigKey
from dohle.core.config.effect import no_effect
from dohle.core.config.group import GROUP_CONFIGS
from dohle.core.config.static import BrokerConfig, base_name
from dohle.core.config.topic import TOPIC_CONFIGS
from dohle.core.errors import KafkaError
from dohle.metadata.delta import ConfigChange
from dohle.metadata.image import ClusterImage, ConfigResource, ResourceType
from dohle.metadata.topic_names import is_internal

logger = logging.getLogger("dohle.server.configs")

_TABLES: Final[Mapping[int, Mapping[str, ConfigKey]]] = {
    ResourceType.TOPIC: TOPIC_CONFIGS,
    ResourceType.BROKER: BROKER_CONFIGS,
    ResourceType.GROUP: GROUP_CONFIGS,
    ResourceType.CLIENT_METRICS: CLIENT_METRICS_CONFIGS,
}
_POLICY: Final = "cleanup.policy"
_NAMED_MAX: Final = 10


class ConfigEffects:
    """Remembers what was told in this run."""

    def __init__(self) -> None:
        # Names of our own tables only, so it cannot grow beyond them.
        self._told: set[str] = set()

    def started(self, config: BrokerConfig, image: ClusterImage) -> None:
        """Tell what the properties file and the metadata log hold."""
        self._tell(ResourceType.BROKER, config.texts)
        compacted = []
        for resource, configs in image.configs.items():
            self._tell(resource.type, configs)
            if _is_compacted(resource, configs):
                compacted.append(resource.name)
        _warn_of_compaction(compacted)

    def changed(self, changes: Iterable[ConfigChange]) -> None:
        """Tell what was altered."""
        compacted = []
        for resource, before, after in changes:
            self._tell(resource.type, {k: v for k, v in after.items() if before.get(k) != v})
            if _is_compacted(resource, after) and not _is_compacted(resource, before):
                compacted.append(resource.name)
        _warn_of_compaction(compacted)

    def _tell(self, kind: int, configs: Mapping[str, str]) -> None:
        table = _TABLES.get(kind, {})
        for name in configs:
            key = table.get(base_name(name))
            if key is not None and key.no_effect and key.name not in self._told:
                self._told.add(key.name)
                logger.info("%s: %s, because %s", NO_EFFECT, key.name, key.no_effect)


def _is_compacted(resource: ConfigResource, configs: Mapping[str, str]) -> bool:
    """Tell whether somebody wants a topic compacted; those of the coordinators are ours."""
    if resource.type != ResourceType.TOPIC or _POLICY not in configs or is_internal(resource.name):
        return False
    key = TOPIC_CONFIGS[_POLICY]
    try:
        return bool(no_effect(key, key.parse(configs[_POLICY])))
    except KafkaError:  # of another release
        return False


def _warn_of_compaction(topics: list[str]) -> None:
    if topics:
        more = f" and {len(topics) - _NAMED_MAX} more" if len(topics) > _NAMED_MAX else ""
        logger.warning(
            "cleanup.policy=compact has no effect yet, as there is no log cleaner: nothing is "
            "compacted, and without 'delete' these topics only grow: %s%s",
            ", ".join(sorted(topics)[:_NAMED_MAX]),
            more,
        )
