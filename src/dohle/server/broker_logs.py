"""Opening the logs of a broker at its start: what the image assigns to it, and nothing else."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache

from dohle.core.config.definition import ConfigValues
from dohle.core.config.topic import effective_topic_config
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName, TopicPartition
from dohle.core.steps import Steps
from dohle.core.uuid import is_reserved, uuid_to_text
from dohle.metadata.image import ClusterImage
from dohle.server.partitions.topic_settings import TopicSettings
from dohle.server.quorum.loss import LossCheck
from dohle.server.shared import Shared
from dohle.server.tier.settings import SYSTEM_ENABLE
from dohle.storage.config import LogConfig
from dohle.storage.directory.clean_shutdown import read_broker_epoch
from dohle.storage.directory.meta_properties import InvalidMetaProperties
from dohle.storage.moves.places import ReplicaAssignment

logger = logging.getLogger("dohle.server")


def find_previous_epoch(shared: Shared) -> int:
    """Return the last broker epoch if all directories were stopped cleanly in it, else -1 (A35)."""
    logs, fs = shared.logs, shared.host.files
    if logs.offline_directories:
        return -1
    told = {read_broker_epoch(fs, directory.path) for directory in logs.directories}
    epoch = told.pop() if len(told) == 1 else None
    return -1 if epoch is None else epoch


class BrokerLogs:
    """The logs of a broker, as an image wants them."""

    def __init__(self, shared: Shared, image: ClusterImage) -> None:
        self._config = shared.config
        self._logs = shared.logs
        self._image = image

    def load(self, loss: LossCheck | None) -> Steps[None]:
        """Open every log in the directories, and set aside what is not this broker's."""
        yield from self._logs.load_in_steps(self._log_configs(), self._assignment_of)
        yield from self._set_strays_aside(loss)

    def refuse_missing_directories(self) -> None:
        """Do not mistake the empty mount point of a missing disk for a new directory.

        Logs would begin anew in it, and clients would see offsets go back.
        """
        node_id, logs = self._config.node_id, self._logs
        named = {
            partition.directory_of(node_id)
            for topic in self._image.topics.values()
            for partition in topic.partitions.values()
            if node_id in partition.replicas
        }
        here = {directory.directory_id for directory in logs.directories}
        missing = [one for one in sorted(named - here) if not is_reserved(one)]
        if logs.new_directories and len(missing) > len(logs.offline_directories):
            path = logs.new_directories[0].path
            raise InvalidMetaProperties(
                f"{path} has no meta.properties, and the directory {uuid_to_text(missing[0])}, "
                "which has partitions of this broker, is missing: mount its disk. To go on without "
                "what was on it, format the new one (dohle storage format --ignore-formatted)."
            )

    def refuse_tiered_topics(self) -> None:
        """Do not serve half of a log: what is remote only would be taken for gone (T2)."""
        if self._config.get_bool(SYSTEM_ENABLE):
            return
        for topic in self._image.topics.values():
            settings = TopicSettings.of(topic.name, self._topic_values(topic.name))
            if settings.log.remote_storage_enable:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"{topic.name} has remote.storage.enable=true, and this broker no remote tier:"
                    f" start it with {SYSTEM_ENABLE}=true and the store that it had",
                )

    def _log_configs(self) -> Callable[[TopicPartition], LogConfig]:
        """Return a function that gives a log its settings; the logs of a topic share them."""
        settings = cache(lambda topic: TopicSettings.of(topic, self._topic_values(topic)))
        return lambda partition: settings(partition.topic).log

    def _topic_values(self, name: TopicName) -> ConfigValues:
        image = self._image
        return effective_topic_config(
            image.topic_config(name),
            self._config,
            image.broker_config(self._config.node_id),
            image.cluster_config(),
        )

    def _assignment_of(self, partition: TopicPartition) -> ReplicaAssignment | None:
        topic = self._image.topic(partition.topic)
        found = None if topic is None else topic.partitions.get(partition.partition)
        if topic is None or found is None or self._config.node_id not in found.replicas:
            return None
        return ReplicaAssignment(topic.id, found.directory_of(self._config.node_id))

    def _set_strays_aside(self, loss: LossCheck | None) -> Steps[None]:
        """Keep, but do not serve, logs that the image does not assign to this broker."""
        strays, renamed = [], []
        for log in self._logs:
            topic = self._image.topic(log.partition.topic)
            partition = None if topic is None else topic.partitions.get(log.partition.partition)
            if partition is None or topic is None or self._config.node_id not in partition.replicas:
                strays.append(log.partition)
            elif log.topic_id is not None and log.topic_id != topic.id:
                renamed.append((log.partition, log.topic_id))
        if loss is not None:
            loss.stray_logs(renamed)
        strays += [key for key, _ in renamed]
        for key in strays:
            logger.warning(
                "%s is not assigned to this broker, so its folder is set aside: see dohle storage"
                " strays",
                key,
            )
            yield None
        yield from self._logs.mark_stray_in_steps(strays)
