"""What must hold of a cluster's partitions at every event: a watch that sees all nodes at once.

It keeps what no node may know: how far records were ever committed (the true high watermark), of
which leader epochs these are, how far each replica's log went, who led in which epoch. After each
callback of a node it looks at what has changed there, and at nothing else, so that a look takes a
few microseconds.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from dohle.core.ids import BrokerId, TopicName, TopicPartition, Uuid
from dohle.metadata.image import ClusterImage, TopicImage
from dohle.metadata.partition import NO_LEADER, PartitionImage
from dohle.server.node import Node
from dohle.server.partitions.partitions import Partition
from dohle.storage.leader_epochs import EpochEntry
from dohle.storage.log import Log
from dohle.testing.checking.history import Delivery, History
from dohle.testing.simulation.machine import Machine
from dohle.testing.simulation.world import Stuck
from tests.server.replicas.simulated_cluster import SimulatedCluster

_TOLD_MAX = 20


@dataclass(slots=True)
class _Replica:
    """What was last seen of a replica; it stays on the disk of a node that is killed."""

    life: int
    log: Log
    end: int
    start: int
    high_watermark: int
    epochs: list[EpochEntry]
    #: As a leader; None as a follower.
    led_epoch: int | None = None
    stable: int = 0


@dataclass(slots=True)
class _Ghost:
    """What is true of a partition, whoever knows it."""

    key: TopicPartition
    high_watermark: int = 0
    #: The leader epochs of what is committed.
    epochs: list[EpochEntry] = field(default_factory=list)
    #: When the high watermark has moved, and to where.
    moved: list[tuple[int, int]] = field(default_factory=list)
    leaders: dict[int, BrokerId] = field(default_factory=dict)
    #: The newest that any node has.
    image: PartitionImage | None = None
    replicas: dict[BrokerId, _Replica] = field(default_factory=dict)

    def committed_at(self, time_ns: int) -> int:
        """Return the true high watermark as it was at a time."""
        index = bisect_right(self.moved, (time_ns, 1 << 62))
        return self.moved[index - 1][1] if index else 0


def epoch_at(entries: list[EpochEntry], offset: int) -> int:
    """Return the leader epoch of the record at an offset; -1 if that is not known."""
    found = -1
    for epoch, start in entries:
        if start > offset:
            break
        found = epoch
    return found


def below(entries: list[EpochEntry], start: int, end: int) -> list[EpochEntry]:
    """Return the epochs of the records between two offsets, each with where it begins."""
    if start >= end:
        return []
    inner = [each for each in entries if start < each.start_offset < end]
    return [EpochEntry(epoch_at(entries, start), start), *inner]


class Found(Stuck):
    """Something was seen that must not be: the run need not go on."""


class PartitionWatch:
    """Watches the nodes of a cluster; ``problems`` says what it has seen that must not be."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        #: Whether to raise ``Found`` at the first problem.
        self.stops = False
        self._min_isr = cluster.min_isr
        self._ids = {machine: node_id for node_id, machine in cluster.machines.items()}
        self._ghosts: dict[tuple[Uuid, int], _Ghost] = {}
        self._images: dict[BrokerId, ClusterImage] = {}
        #: By node: what was last seen of each partition, to find out what has changed.
        self._seen: dict[BrokerId, dict[Partition, tuple[object, ...]]] = {}
        self.problems: list[str] = []

    def after(self, machine: Machine) -> None:
        """Look at a node whose callback has just run."""
        node_id = self._ids.get(machine)
        if node_id is None:
            return
        node = self._cluster.working.get(node_id)
        if node is None:
            self._images.pop(node_id, None)
            self._seen.pop(node_id, None)
            return
        image = node.images.image
        if image is not self._images.get(node_id):
            self._image_changed(node_id, image)
        seen = self._seen.setdefault(node_id, {})
        for partition in node.broker.partitions:
            log, replication = partition.log, partition.replication
            state = (
                log.log_end_offset,
                log.high_watermark,
                log.log_start_offset,
                partition.image,
                replication.maximal_isr,
            )
            if seen.get(partition) != state:
                seen[partition] = state
                self._partition_changed(node_id, machine.life, partition)

    def _tell(self, rule: str, key: object, text: str) -> None:
        if len(self.problems) < _TOLD_MAX:
            world = self._cluster.world
            self.problems.append(
                f"{rule} {key} at {world.now_s:.6f} (callback {world.callbacks}): {text}"
            )
            if self.stops:
                raise Found(self.problems[-1])

    # Images

    def _image_changed(self, node_id: BrokerId, image: ClusterImage) -> None:
        before = self._images.get(node_id)
        self._images[node_id] = image
        for broker_id, registration in image.brokers.items():
            known = None if before is None else before.broker(broker_id)
            if known is not None and registration.epoch < known.epoch:
                self._tell("P9", f"broker {broker_id}", f"epoch {registration.epoch} after {known}")
        for topic in image.topics.values():
            known_topic = None if before is None else before.topic(topic.name)
            if topic is not known_topic:
                self._topic_changed(node_id, image, topic, known_topic)

    def _topic_changed(
        self, node_id: BrokerId, image: ClusterImage, topic: TopicImage, before: TopicImage | None
    ) -> None:
        for index, partition in topic.partitions.items():
            known = None if before is None else before.partitions.get(index)
            if partition is known:
                continue
            key = TopicPartition(topic.name, index)
            ghost = self._ghost(topic.id, key)
            if known is not None and (
                partition.partition_epoch < known.partition_epoch
                or partition.leader_epoch < known.leader_epoch
            ):
                self._tell("P9", key, f"node {node_id} goes back from {known} to {partition}")
            self._check_sets(key, image, partition)
            self._note_image(ghost, partition)

    def _check_sets(self, key: TopicPartition, image: ClusterImage, found: PartitionImage) -> None:
        isr, elr, replicas = set(found.isr), set(found.elr), set(found.replicas)
        if isr & elr or not isr | elr <= replicas:
            self._tell("P8", key, f"ISR {found.isr}, ELR {found.elr} of {found.replicas}")
        if found.leader != NO_LEADER:
            if found.leader not in isr:
                self._tell("P8", key, f"leader {found.leader} is not in the ISR {found.isr}")
            fenced = [each for each in found.isr if not _is_unfenced(image, each)]
            if fenced:
                self._tell("P8", key, f"{fenced} are fenced, and in the ISR {found.isr}")
        asked = image.topic_config(key.topic).get("min.insync.replicas", self._min_isr)
        if elr and len(isr) >= min(int(asked), len(found.replicas)):
            self._tell("P8", key, f"ISR {found.isr} is enough, but there is an ELR {found.elr}")

    def _note_image(self, ghost: _Ghost, found: PartitionImage) -> None:
        known = ghost.image
        if known is not None and known.partition_epoch == found.partition_epoch and known != found:
            self._tell("P9", ghost.key, f"{known} and {found} at the same epoch")
        if known is None or found.partition_epoch > known.partition_epoch:
            if known is not None and found.leader_epoch < known.leader_epoch:
                self._tell("P9", ghost.key, f"leader epoch {found.leader_epoch} after {known}")
            ghost.image = found
            for each in [each for each in ghost.replicas if each not in found.replicas]:
                # It may come back, with nothing.
                del ghost.replicas[each]
            if found.leader != NO_LEADER:
                self._note_leader(ghost, found.leader_epoch, found.leader)
            self._check_members(ghost)

    def _note_leader(self, ghost: _Ghost, leader_epoch: int, leader: BrokerId) -> None:
        known = ghost.leaders.setdefault(leader_epoch, leader)
        if known != leader:
            self._tell("P9", ghost.key, f"{known} and {leader} lead in epoch {leader_epoch}")

    # Replicas

    def _ghost(self, topic_id: Uuid, key: TopicPartition) -> _Ghost:
        ghost = self._ghosts.get((topic_id, key.partition))
        if ghost is None:
            ghost = self._ghosts[topic_id, key.partition] = _Ghost(key)
        return ghost

    def _partition_changed(self, node_id: BrokerId, life: int, partition: Partition) -> None:
        ghost = self._ghost(partition.topic_id, partition.key)
        log = partition.log
        before = ghost.replicas.get(node_id)
        epochs = log.leader_epochs.entries
        now = _Replica(
            life, log, log.log_end_offset, log.log_start_offset, log.high_watermark, epochs
        )
        if partition.is_led and partition.replication.is_leader:
            now.led_epoch, now.stable = partition.leader_epoch, log.last_stable_offset
        ghost.replicas[node_id] = now
        if log.topic_id not in (None, partition.topic_id):
            self._tell("P17", ghost.key, f"node {node_id} has a log of {log.topic_id!r}")
        if not now.start <= now.high_watermark <= now.end:
            self._tell("P15", ghost.key, f"node {node_id}: {now}")
        if before is not None and (before.life != life or before.log is log):
            self._check_change(ghost, node_id, before, now)
        if now.led_epoch is None:
            has_led = before is not None and before.life == life and before.led_epoch is not None
            if has_led and now.high_watermark > ghost.high_watermark:
                # It has heard of several changes at once: it led, and the next leader has it too.
                members = partition.replication.maximal_isr
                self._committed(ghost, node_id, members, now)
            if now.high_watermark > ghost.high_watermark:
                text = f"node {node_id} follows, and says {now.high_watermark} is committed"
                self._tell("P12", ghost.key, f"{text}, which {ghost.high_watermark} is")
        else:
            self._check_leader(ghost, node_id, partition, before, now)

    def _check_change(
        self, ghost: _Ghost, node_id: BrokerId, before: _Replica, now: _Replica
    ) -> None:
        if before.life == now.life and now.start < before.start:
            self._tell("P15", ghost.key, f"node {node_id}: the start falls to {now.start}")
        cut = now.end
        if cut < before.end and cut < ghost.high_watermark and now.start == before.start:
            committed = epoch_at(ghost.epochs, cut)
            if epoch_at(before.epochs, cut) == committed:
                text = f"node {node_id} is cut from {before.end} to {cut}, of epoch {committed}"
                self._tell("P7", ghost.key, f"{text}, and {ghost.high_watermark} is committed")
        if cut < before.end:
            self._check_members(ghost)

    def _check_leader(
        self,
        ghost: _Ghost,
        node_id: BrokerId,
        partition: Partition,
        before: _Replica | None,
        now: _Replica,
    ) -> None:
        epoch = partition.leader_epoch
        self._note_leader(ghost, epoch, node_id)
        image = ghost.image
        is_stale = image is not None and image.leader_epoch > epoch
        if before is not None and before.life == now.life and before.led_epoch == epoch:
            self._check_falls(ghost, node_id, before, now)
        elif not is_stale:
            self._check_new_leader(ghost, node_id, now)
        members = partition.replication.maximal_isr
        # The answer of the controller may be here before its record is in anybody's image.
        knows = image is None or image.partition_epoch < partition.replication.partition_epoch
        if image is not None and not (is_stale or knows or set(image.isr) <= set(members)):
            self._tell("P4", ghost.key, f"leader {node_id} counts {members}, not {image.isr}")
        # One that does not know of its successor yet may hear what all have fetched before.
        if now.high_watermark > ghost.high_watermark:
            self._committed(ghost, node_id, members, now)

    def _check_falls(
        self, ghost: _Ghost, node_id: BrokerId, before: _Replica, now: _Replica
    ) -> None:
        if now.end < before.end:
            self._tell("P7", ghost.key, f"leader {node_id} is cut to {now.end} in its epoch")
        for name in ("high_watermark", "stable", "start"):
            if getattr(now, name) < getattr(before, name):
                self._tell("P5", ghost.key, f"leader {node_id}: {name} falls: {before} {now}")

    def _check_new_leader(self, ghost: _Ghost, node_id: BrokerId, now: _Replica) -> None:
        """P1: what was committed is in the log of every later leader, of the same epochs (P10)."""
        committed = ghost.high_watermark
        if now.end < committed:
            text = f"leader {node_id} ends at {now.end}, and {committed} is committed"
            self._tell("P1", ghost.key, text)
            return
        self._check_epochs(ghost, node_id, now)

    def _check_epochs(self, ghost: _Ghost, node_id: BrokerId, now: _Replica) -> None:
        here = below(now.epochs, now.start, ghost.high_watermark)
        true = below(ghost.epochs, now.start, ghost.high_watermark)
        if here != true:
            self._tell("P10", ghost.key, f"node {node_id} has epochs {here}, and not {true}")

    def _committed(
        self, ghost: _Ghost, node_id: BrokerId, members: tuple[BrokerId, ...], now: _Replica
    ) -> None:
        self._check_epochs(ghost, node_id, now)
        last = now.high_watermark - 1
        for each in members:
            end, epoch = self._seen_of(ghost, each, last)
            if end is not None and (end <= last or epoch != epoch_at(now.epochs, last)):
                text = f"leader {node_id} says {last} is committed by {members}"
                self._tell("P3", ghost.key, f"{text}, but {each} ends at {end}, epoch {epoch}")
        ghost.high_watermark = now.high_watermark
        ghost.epochs = now.epochs
        ghost.moved.append((self._cluster.world.time.now_ns, now.high_watermark))
        self._check_members(ghost)

    def _check_members(self, ghost: _Ghost) -> None:
        """P2: whoever may be elected has all that was committed."""
        image = ghost.image
        if image is None:
            return
        for each in (*image.isr, *image.elr):
            node = self._cluster.working.get(each)
            end = None if node is None else _end_on(node, ghost.key)
            if end is not None and end < ghost.high_watermark:
                text = f"{each} ends at {end}, and {ghost.high_watermark} is committed"
                self._tell("P2", ghost.key, f"{text}; ISR {image.isr}, ELR {image.elr}")

    def _seen_of(self, ghost: _Ghost, node_id: BrokerId, offset: int) -> tuple[int | None, int]:
        """Return where a replica ends, and of which epoch it has an offset."""
        node = self._cluster.working.get(node_id)
        found = None if node is None else node.broker.partitions.get(*ghost.key)
        if found is not None:
            return found.log.log_end_offset, epoch_at(found.log.leader_epochs.entries, offset)
        known = ghost.replicas.get(node_id)
        if known is None or self._cluster.machines[node_id].is_running:
            # It is about to start: nobody can see yet what it has.
            return None, -1
        return known.end, epoch_at(known.epochs, offset)

    def power_lost(self, node_id: BrokerId) -> None:
        """Take note that a replica may come back with less than it had."""
        for ghost in self._ghosts.values():
            ghost.replicas.pop(node_id, None)

    # The end

    def committed_at(self, key: TopicPartition, time_ns: int) -> int:
        """Return how far a partition was committed at a time."""
        by_key = {ghost.key: ghost for ghost in self._ghosts.values()}
        return by_key[key].committed_at(time_ns) if key in by_key else 0

    def check_acknowledged(self, history: History) -> list[str]:
        """P16: what acks=all was answered for was committed by then."""
        problems = []
        for send in history.sends:
            if send.offset is None or send.delivery is not Delivery.EXACTLY_ONCE:
                continue
            where = TopicPartition(TopicName(send.partition.topic), send.partition.number)
            committed = self.committed_at(where, send.at_ns)
            if send.offset >= committed:
                problems.append(
                    f"P16 {send.value!r} at offset {send.offset} of {send.partition} was "
                    f"acknowledged when only {committed} was committed"
                )
        return problems[:_TOLD_MAX]


def _is_unfenced(image: ClusterImage, broker_id: BrokerId) -> bool:
    registration = image.broker(broker_id)
    return registration is not None and not registration.fenced


def _end_on(node: Node, key: TopicPartition) -> int | None:
    found = node.broker.partitions.get(*key)
    return None if found is None else found.log.log_end_offset
