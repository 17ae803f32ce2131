"""The topic of the ledger: created compacted, and checked if it exists.

With ``delete`` in its policy the standing of a query expires, and the query writes again what it
has written. A topic that somebody else has created is handled so:

- ``compact`` is as it should be. So is the empty policy, which keeps everything.
- If nobody has chosen its policy and it is empty, as one that a broker has created by itself, it
  becomes compacted.
- Otherwise it is refused, with the command that mends it: it may be of something else, whose
  records compaction would remove.
- If the configs may not be read, a warning says what to look for.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from dohle.client import Admin, Cluster, End, NewTopic
from dohle.client.admin.config_values import (
    AlterOp,
    ConfigChange,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from dohle.client.consumer.offsets import list_offsets
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicPartition

_log = logging.getLogger("dohle.spark.sink")

_REPLICAS = 3
_POLICY: Final = "cleanup.policy"
#: Segments are small and compacted soon: every new reader reads all of it.
_COMPACTED = {_POLICY: "compact"}
_CONFIGS = {
    **_COMPACTED,
    "segment.bytes": str(1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
}
#: Who runs the brokers may have reserved these settings for himself.
_REFUSED = (ErrorCode.INVALID_CONFIG, ErrorCode.POLICY_VIOLATION)
#: Right after its creation a broker may not know a topic.
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_FORBIDDEN = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


class LedgerTopic:
    """Sees to the topic, once."""

    def __init__(self, cluster: Cluster, partition: TopicPartition) -> None:
        self._cluster = cluster
        self._admin = Admin(cluster)
        self._partition = partition
        self._name = partition.topic
        self._is_ensured = False

    async def ensure(self) -> None:
        """Create the topic if it does not exist, and else see that its records are kept."""
        if self._is_ensured:
            return
        if await self._exists():
            await self._check()
        else:
            await self._create_as_allowed()
        self._is_ensured = True

    async def _exists(self) -> bool:
        name = self._name
        try:
            if self._cluster.known_topic(name) is None:
                await self._cluster.retry(f"topic {name}", lambda: self._cluster.refresh((name,)))
            await self._cluster.topic(name)
        except KafkaError as error:
            if error.code not in _UNKNOWN:
                raise
            return False
        return True

    # One that does not exist

    async def _create_as_allowed(self) -> None:
        try:
            is_new = await self._create(_CONFIGS)
        except KafkaError as error:
            if error.code not in _REFUSED:
                raise
            is_new = await self._create(_COMPACTED)
        if not is_new:
            # Another query was first, or somebody else.
            await self._check()

    async def _create(self, configs: Mapping[str, str]) -> bool:
        name = self._name
        replication_factor = min(_REPLICAS, len(await self._cluster.brokers()))
        new = NewTopic(
            name, partitions=1, replication_factor=replication_factor, configs=dict(configs)
        )
        created = await self._admin.create_topics([new])
        for error in created.errors.values():
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise error
        if created.errors:
            return False
        _log.info("created topic %s, which records what queries have written", name)
        return True

    # One that exists

    async def _check(self) -> None:
        resource = ConfigResource(ResourceType.TOPIC, self._name)
        try:
            entries = (await self._admin.describe_configs([resource], names=[_POLICY])).one()
        except KafkaError as error:
            if error.code not in _FORBIDDEN:
                raise
            _log.warning(
                "the configs of topic %s may not be read: see to it that its %s is compact, or "
                "what queries have written is forgotten one day, and written again",
                self._name,
                _POLICY,
            )
            return
        for entry in entries:
            policy = [part.strip() for part in (entry.value or "").split(",")]
            if "delete" not in policy:
                continue
            if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG or not await self._is_empty():
                raise KafkaError(ErrorCode.INVALID_CONFIG, self._refusal(entry.value or ""))
            await self._compact(resource)

    async def _is_empty(self) -> bool:
        listed = await list_offsets(self._cluster, {self._partition: End()})
        return listed.ok()[self._partition].offset == 0

    async def _compact(self, resource: ConfigResource) -> None:
        changes = [ConfigChange(name, AlterOp.SET, value) for name, value in _COMPACTED.items()]
        try:
            (await self._admin.incremental_alter_configs({resource: changes})).ok()
        except KafkaError as error:
            if error.code not in _FORBIDDEN:
                raise
            raise KafkaError(error.code, self._refusal("delete")) from error
        _log.info("topic %s is compacted now: it records what queries have written", self._name)

    def _refusal(self, policy: str) -> str:
        name = self._name
        return (
            f"topic {name} has cleanup.policy={policy}: the ledger of queries in it would expire, "
            "and what they have written be written again. If it is meant to be the ledger: "
            f"dohle topic alter {name} --config {_POLICY}=compact (or kafka-configs.sh --alter "
            f"--topic {name} --add-config {_POLICY}=compact). If not, choose another topic."
        )
