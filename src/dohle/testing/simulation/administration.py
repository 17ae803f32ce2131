"""Topics are made, deleted, made again, grown, configured, moved and led by others, while in use.

And the quorum keeps its voter in the metadata log from some moment on (``kraft.version`` 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from dohle.client import (
    Admin,
    AlterOp,
    ClientConfig,
    Cluster,
    ConfigChange,
    ConfigResource,
    ElectionType,
    NewTopic,
    ResourceType,
    Results,
)
from dohle.core.errors import KafkaError
from dohle.core.ids import TopicName, TopicPartition
from dohle.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from dohle.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from dohle.testing.checking.history import PARTITION_COUNT, History, Outcome, TopicChange
from dohle.testing.simulation.machine import SimulatedHost

#: It asks once and no more: a request that is taken for lost and sent again may come twice, and the
#: late one would undo what was done in between.
ADMINISTRATOR = ClientConfig(
    request_timeout_ms=3_000,
    api_timeout_ms=8_000,
    socket_connection_setup_timeout_ms=2_000,
    retry_backoff_max_ms=500,
    retries=0,
)
_CONFIG = "retention.bytes"
#: What all of them are changes of, where it is no topic.
_CLUSTER, _KRAFT_VERSION = "the cluster", "kraft.version"
_TOPICS_MAX = 5
_PARTITIONS_MAX = 6


class Administrator:
    """Makes topics of its own and changes them, and moves the logs of others."""

    def __init__(
        self,
        cluster: Cluster,
        host: SimulatedHost,
        history: History,
        name: str,
        log_dirs: Sequence[str],
        moved: Sequence[tuple[str, int]],
    ) -> None:
        self._cluster = cluster
        self._admin = Admin(cluster)
        self._rng = host.rng
        self._history = history
        self._name = name
        self._log_dirs = log_dirs
        #: Topics whose logs it moves, and how many partitions each has.
        self._moved = moved
        #: The topics that are known to be there, with their numbers of partitions.
        self._topics: dict[str, int] = {}
        self._made = 0

    async def change_something(self) -> None:
        """Make one change of any kind."""
        kinds = [self._create, self._move, self._elect, self._upgrade]
        if self._topics:
            kinds += [self._delete, self._make_anew, self._grow, self._configure]
        with suppress(KafkaError):
            await self._rng.choice(kinds)()

    async def _create(self) -> None:
        if len(self._topics) >= _TOPICS_MAX:
            return
        self._made += 1
        name, partitions = f"{self._name}-{self._made}", self._rng.randint(1, 3)
        change = self._history.change(name, PARTITION_COUNT, partitions)
        _note(change, await self._admin.create_topics([NewTopic(name, partitions)]))
        if change.outcome is Outcome.OK:
            self._topics[name] = partitions

    async def _delete(self) -> None:
        name = self._any_topic()
        del self._topics[name]
        change = self._history.change(name, PARTITION_COUNT, 0)
        _note(change, await self._admin.delete_topics([name]))

    async def _make_anew(self) -> None:
        """Delete a topic, and make another of its name, which must not be taken for the old one."""
        name, partitions = self._any_topic(), self._rng.randint(1, 3)
        del self._topics[name]
        change = self._history.change(name, PARTITION_COUNT, 0)
        _note(change, await self._admin.delete_topics([name]))
        if change.outcome is Outcome.OK:
            self._history.change(name, _CONFIG, None).outcome = Outcome.OK
            change = self._history.change(name, PARTITION_COUNT, partitions)
            _note(change, await self._admin.create_topics([NewTopic(name, partitions)]))
        if change.outcome is Outcome.OK:
            self._topics[name] = partitions

    async def _elect(self) -> None:
        """Have preferred leaders elected, under the load of whoever uses the topics."""
        topic, partitions = self._rng.choice(self._moved)
        where = TopicPartition(TopicName(topic), self._rng.randrange(partitions))
        await self._admin.elect_leaders(ElectionType.PREFERRED, [where])

    async def _grow(self) -> None:
        name = self._any_topic()
        wanted = self._topics[name] + self._rng.randint(1, 2)
        if wanted > _PARTITIONS_MAX:
            return
        # Whether it has grown is not known before the answer, so nor what the next one may be.
        del self._topics[name]
        change = self._history.change(name, PARTITION_COUNT, wanted)
        _note(change, await self._admin.create_partitions({name: wanted}))
        if change.outcome is Outcome.OK:
            self._topics[name] = wanted

    async def _configure(self) -> None:
        name, value = self._any_topic(), str(self._rng.randint(1 << 20, 1 << 30))
        change = self._history.change(name, _CONFIG, value)
        resource = ConfigResource(ResourceType.TOPIC, name)
        wanted = ConfigChange(_CONFIG, AlterOp.SET, value)
        _note(change, await self._admin.incremental_alter_configs({resource: [wanted]}))

    async def _move(self) -> None:
        if len(self._log_dirs) < 2:
            return
        topic, partitions = self._rng.choice(self._moved)
        some = AlterReplicaLogDirTopic(
            name=TopicName(topic), partitions=(self._rng.randrange(partitions),)
        )
        place = AlterReplicaLogDir(path=self._rng.choice(self._log_dirs), topics=(some,))
        connection = await self._cluster.any_connection()
        request = AlterReplicaLogDirsRequest(dirs=(place,))
        # Whatever it says: what clients of these topics see must be as if nothing had happened.
        await connection.request(request, AlterReplicaLogDirsResponse)

    async def _upgrade(self) -> None:
        change = self._history.change(_CLUSTER, _KRAFT_VERSION, 1)
        key = FeatureUpdateKey(feature=_KRAFT_VERSION, max_version_level=1)
        connection = await self._cluster.controller_connection()
        request = UpdateFeaturesRequest(feature_updates=(key,))
        answer = await connection.request(request, UpdateFeaturesResponse)
        if not answer.error_code:
            change.outcome = Outcome.OK

    def _any_topic(self) -> str:
        return self._rng.choice(sorted(self._topics))


def _note(change: TopicChange, results: Results[Any, Any]) -> None:
    if not results.errors:
        change.outcome = Outcome.OK


async def note_final_topics(admin: Admin, history: History) -> None:
    """Look at the topics that somebody has changed, and at the quorum."""
    levels = (await admin.describe_features()).finalized
    _, kraft_version = levels.get(_KRAFT_VERSION, (None, None))
    history.final_topics[_CLUSTER] = {_KRAFT_VERSION: kraft_version}
    changed = {change.topic for change in history.changes}
    found = await admin.list_topics()
    names = [name for name in sorted(found) if name in changed]
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    configs = await admin.describe_configs(resources, names=[_CONFIG]) if resources else None
    for name, resource in zip(names, resources, strict=True):
        properties = history.final_topics.setdefault(name, {})
        properties[PARTITION_COUNT] = len(found[name].partitions)
        entries = [] if configs is None else configs.ok()[resource]
        altered = [e.value for e in entries if e.source.name == "DYNAMIC_TOPIC_CONFIG"]
        properties[_CONFIG] = altered[0] if altered else None
