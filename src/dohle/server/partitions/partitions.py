"""The partitions this broker has, kept in step with the cluster image.

A partition binds its place in the image (leader, epochs) to its log and to what its topic's
settings ask of records. Looking one up by name or by topic id costs two dictionary look-ups,
however many there are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicName, TopicPartition, Uuid
from dohle.core.steps import Steps
from dohle.metadata.image import TopicImage
from dohle.metadata.partition import PartitionImage
from dohle.metadata.topic_names import INTERNAL_TOPICS
from dohle.metrics.traffic import Traffic
from dohle.records.checking.fast_check import allows_fast_check
from dohle.records.checking.validation import ValidationRules
from dohle.replication.partition import PartitionReplication
from dohle.server.net.outcome import Gate
from dohle.server.partitions.commits import Commits, CommitWaiter
from dohle.server.partitions.topic_settings import TopicSettings
from dohle.storage.directory.manager import LogManager
from dohle.storage.log import Log

logger = logging.getLogger("dohle.server")

#: Until it is configured.
_NO_RULES = ValidationRules()


class Partition:
    """A partition whose replica is on this broker."""

    __slots__ = (
        "_commits",
        "_node_id",
        "allows_fast_check",
        "gate",
        "image",
        "is_gone",
        "is_led",
        "is_under_min_isr",
        "key",
        "log",
        "on_failed",
        "on_progress",
        "replication",
        "rules",
        "topic_id",
        "traffic",
    )

    def __init__(
        self,
        key: TopicPartition,
        topic_id: Uuid,
        image: PartitionImage,
        log: Log,
        node_id: BrokerId,
        commits: Commits,
    ) -> None:
        self.key = key
        self.topic_id = topic_id
        self.image = image
        self.log = log
        self.rules = _NO_RULES
        self.traffic = Traffic()
        self._node_id = node_id
        self._commits = commits
        #: What is committed, and who waits for a commit.
        self.replication: PartitionReplication[CommitWaiter] = PartitionReplication(
            node_id,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            high_watermark=log.high_watermark,
            lag_ms_max=commits.lag_ms_max,
        )
        self.replication.brokers_changed(commits.brokers)
        #: The last gate made by ``Commits.gate``, with the offset and timeout asked for.
        self.gate: tuple[Gate, int, int] | None = None
        #: Called when appends were written, and when more was committed: for the coordinator whose
        #: state is in this log.
        self.on_progress: Callable[[], None] | None = None
        #: Called when appends could not be written.
        self.on_failed: Callable[[], None] | None = None
        #: Whether any client may append with any acks, and the fast check is all a batch needs.
        self.allows_fast_check = False
        #: Whether too few replicas are in sync for acks=all.
        self.is_under_min_isr = False
        #: Whether it is no longer among this broker's partitions.
        self.is_gone = False
        #: Whether this broker leads it.
        self.is_led = image.leader == node_id

    @property
    def leader_epoch(self) -> int:
        """The epoch of the leader that the image names."""
        return self.image.leader_epoch

    def configure(self, settings: TopicSettings) -> None:
        """Let new settings take effect."""
        self.log.update_config(settings.log)
        self.rules = settings.rules
        self._commits.min_isr_changed(self, settings.min_isr)
        self._note_fast_check()

    def follow(self, image: PartitionImage) -> None:
        """Take in the leader, epochs and replicas of a new image."""
        self.image = image
        self.is_led = image.leader == self._node_id and not self.is_gone
        self._commits.assigned(self)
        self._note_fast_check()

    def isr_changed(self) -> None:
        """Take in that the controller has answered about the ISR."""
        self._note_fast_check()

    def leave(self) -> None:
        """Stop being a partition of this broker: appends by those who still hold it are refused."""
        self.is_gone, self.is_led = True, False
        self._note_fast_check()

    def _note_fast_check(self) -> None:
        self.is_under_min_isr = len(self.replication.isr) < self.replication.min_isr
        self.allows_fast_check = (
            self.is_led
            and not self.is_under_min_isr
            and self.key.topic not in INTERNAL_TOPICS
            and allows_fast_check(self.rules)
        )

    def check_epoch(self, asked: int) -> None:
        """Refuse a client that expects another leader epoch; with -1 it does not say."""
        if asked == -1 or asked == self.leader_epoch:
            return
        if asked < self.leader_epoch:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"leader epoch {asked} is past: it is {self.leader_epoch} now",
            )
        raise KafkaError(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"leader epoch {asked} is not known here yet: it is {self.leader_epoch}",
        )


class Partitions:
    """All partitions of this broker."""

    def __init__(self, node_id: BrokerId, logs: LogManager, commits: Commits) -> None:
        self._node_id = node_id
        self._logs = logs
        self._commits = commits
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[Uuid, dict[int, Partition]] = {}
        #: Those that are in the image but not added here yet.
        self.being_made: set[TopicPartition] = set()
        #: What went through partitions that are here no more: totals never go down.
        self.gone_traffic = Traffic()
        self.gone_records = self.gone_bytes = 0

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._by_name.values():
            yield from partitions.values()

    @property
    def topics(self) -> list[TopicName]:
        """The topics of which there is a partition here."""
        return [TopicName(name) for name, partitions in self._by_name.items() if partitions]

    def of_topic(self, name: TopicName) -> dict[int, Partition]:
        """Return a topic's partitions here."""
        return self._by_name.get(name, {})

    def get(self, topic: str, index: int) -> Partition | None:
        """Return a partition by its topic's name."""
        partitions = self._by_name.get(topic)
        return None if partitions is None else partitions.get(index)

    def get_by_id(self, topic_id: Uuid, index: int) -> Partition | None:
        """Return a partition by its topic's id."""
        partitions = self._by_id.get(topic_id)
        return None if partitions is None else partitions.get(index)

    def add(
        self,
        key: TopicPartition,
        topic_id: Uuid,
        image: PartitionImage,
        settings: TopicSettings,
        *,
        is_new: bool,
    ) -> None:
        """Add a partition that the image assigns to this broker, or take in a change of it."""
        known = self.get(*key)
        if known is not None and known.topic_id == topic_id:
            known.follow(image)
        else:
            log = self._logs.get_or_create(key, topic_id, settings.log, is_new=is_new)
            if known is not None:
                self._let_go(known)
            known = Partition(key, topic_id, image, log, self._node_id, self._commits)
            known.configure(settings)
            known.follow(image)
            self._by_name.setdefault(key.topic, {})[key.partition] = known
            self._by_id.setdefault(topic_id, {})[key.partition] = known
        if image.leader == self._node_id:
            known.log.leader_epochs.assign(image.leader_epoch, known.log.log_end_offset, sync=False)

    def remove(self, partition: Partition, image: PartitionImage) -> None:
        """Let go of a partition whose replicas are all on other brokers now, but for its log."""
        partition.follow(image)
        self._let_go(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for partitions in (
            self._by_name.get(partition.key.topic),
            self._by_id.get(partition.topic_id),
        ):
            if partitions is not None and partitions.get(partition.key.partition) is partition:
                del partitions[partition.key.partition]

    def remove_topic(self, topic: TopicImage) -> Steps[None]:
        """Delete a topic's logs, including those that could not be opened.

        Its partitions are gone with the first step; then one folder is renamed in each.
        """
        gone = {**self._by_name.pop(topic.name, {}), **self._by_id.pop(topic.id, {})}
        for partition in gone.values():
            self._leave(partition)
        for partition in gone.values():
            self._commits.fail(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            yield None
        logs = [self._logs.get(TopicPartition(topic.name, index)) for index in topic.partitions]
        ours = [log for log in logs if log is not None and log.topic_id in (None, topic.id)]
        yield from self._logs.delete_in_steps([log.partition for log in ours])

    def _let_go(
        self, partition: Partition, error: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ) -> None:
        self._leave(partition)
        self._commits.fail(partition, error)

    def _leave(self, partition: Partition) -> None:
        """Lead it no more, and keep what it counts in the totals."""
        if not partition.is_gone:
            self.gone_traffic.add(partition.traffic)
            self.gone_records += partition.log.appended_records
            self.gone_bytes += partition.log.appended_bytes
        partition.leave()
