"""What a leader knows of a partition's replicas: the log end, the high watermark, who is in sync.

A record is committed when every replica that is in sync has it, and the high watermark says how far
that goes. It moves by events: something was appended here, a follower has fetched, the replicas in
sync have changed, the leader has. Each event returns its effects, and whoever reports the event
carries them out: move the log's high watermark, ask the controller for another ISR, wake those who
waited. With a single replica the high watermark moves as soon as something is appended.

The rules are Kafka's:

- The ISR that the metadata log has is the committed one. While an expansion is asked for, the new
  member counts for the high watermark (the maximal ISR) but not for min.insync.replicas; while a
  shrinking is asked for, nothing changes yet. There is one such change at a time.
- Below min.insync.replicas the high watermark does not move, whatever acks the producers ask for:
  an eligible leader must have all that was ever committed (KIP-966).
- A follower out of the ISR that is caught up and may join it is waited for too: it is about to.
- A new leader does not know what its followers have until each has fetched once. Nor does one
  that leads again after an epoch that it has not heard of.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId

UNKNOWN_OFFSET = -1
#: The epoch in a fetch that does not say which registration of its broker it belongs to.
UNKNOWN_BROKER_EPOCH = -1
REPLICA_LAG_MS_MAX = 30_000
#: A time before any that the clock can show, even if it has just been started.
_NEVER_MS = -(1 << 62)

#: Repeating AlterPartition would not change the answer; the metadata log tells what has happened.
_WAIT_FOR_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
#: The controller does not want this ISR.
_REFUSED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})

W = TypeVar("W")


class Assignment(Protocol):
    """A partition's place in the cluster, as the metadata log has it."""

    @property
    def leader(self) -> BrokerId:
        """The broker that leads it."""

    @property
    def leader_epoch(self) -> int:
        """How often a leader was elected."""

    @property
    def partition_epoch(self) -> int:
        """How often anything of this has changed."""

    @property
    def replicas(self) -> tuple[BrokerId, ...]:
        """The brokers that have a replica."""

    @property
    def isr(self) -> tuple[BrokerId, ...]:
        """Those that are in sync."""


class WantedIsr(NamedTuple):
    """What to ask the controller for with AlterPartition."""

    leader_epoch: int
    partition_epoch: int
    #: Each with the epoch of the broker's registration that its fetches told, else -1.
    isr: tuple[tuple[BrokerId, int], ...]
    #: Whether a replica is to come in; else some are to go.
    is_expansion: bool


class Woken(NamedTuple, Generic[W]):
    """A waiter that is done, and its result."""

    waiter: W
    error: ErrorCode


class Effects(NamedTuple, Generic[W]):
    """What follows from an event."""

    #: Where the high watermark has moved to.
    high_watermark: int | None = None
    wanted_isr: WantedIsr | None = None
    woken: Sequence[Woken[W]] = ()


NOTHING: Effects[object] = Effects()
# To make a named tuple this way takes half of the time.
_new = tuple.__new__


class Pulse:
    """When a follower last fetched, for all partitions of which nothing else has to be noted."""

    __slots__ = ("ms",)

    def __init__(self) -> None:
        self.ms = _NEVER_MS


class Follower:
    """What the leader knows of another replica."""

    __slots__ = (
        "_caught_up_ms",
        "_pulse",
        "broker_epoch",
        "fetched_ms",
        "leader_end_at_fetch",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self) -> None:
        self._pulse: Pulse | None = None
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.fetched_ms = _NEVER_MS
        #: The leader's log end when it fetched last.
        self.leader_end_at_fetch = 0
        self._caught_up_ms = _NEVER_MS
        self.broker_epoch = UNKNOWN_BROKER_EPOCH

    @property
    def caught_up_ms(self) -> int:
        """When it last had everything that the leader had."""
        pulse = self._pulse
        return self._caught_up_ms if pulse is None else max(self._caught_up_ms, pulse.ms)

    def settle(self, pulse: Pulse) -> None:
        """Let the pulse tell of its fetches, as long as it has everything and nothing happens."""
        self._pulse = pulse

    def unsettle(self) -> None:
        """Take in what the pulse has told: from now on it is noted here again."""
        if self._pulse is not None:
            self._caught_up_ms = self.caught_up_ms
            self.fetched_ms = max(self.fetched_ms, self._pulse.ms)
            self._pulse = None

    def reset(self, now_ms: int, leader_end: int, *, in_isr: bool, is_new_leader: bool) -> None:
        """Begin a leader epoch."""
        self._pulse = None
        # Out of the ISR it must not hold the high watermark up.
        self._caught_up_ms = now_ms if in_isr else _NEVER_MS
        if is_new_leader:
            self.log_end_offset = self.log_start_offset = UNKNOWN_OFFSET
            self.leader_end_at_fetch = UNKNOWN_OFFSET
            self.fetched_ms = _NEVER_MS
            self.broker_epoch = UNKNOWN_BROKER_EPOCH
        else:
            self.leader_end_at_fetch = leader_end
            self.fetched_ms = now_ms if in_isr else _NEVER_MS

    def fetched(
        self, offset: int, log_start_offset: int, leader_end: int, now_ms: int, broker_epoch: int
    ) -> None:
        """Take in that it has everything below ``offset``."""
        self.unsettle()
        if offset >= leader_end:
            self._caught_up_ms = max(self._caught_up_ms, now_ms)
        elif offset >= self.leader_end_at_fetch:
            # It has what there was when it fetched last: so it was caught up then.
            self._caught_up_ms = max(self._caught_up_ms, self.fetched_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.leader_end_at_fetch = max(leader_end, self.leader_end_at_fetch)
        self.fetched_ms = now_ms
        self.broker_epoch = broker_epoch

    def is_caught_up(self, leader_end: int, now_ms: int, lag_ms_max: int) -> bool:
        """Tell whether it has everything, or had not long ago."""
        return self.log_end_offset == leader_end or now_ms - self.caught_up_ms <= lag_ms_max


class _Waiting(NamedTuple, Generic[W]):
    offset: int
    deadline_ms: int
    waiter: W


def _reached(waiting: deque[_Waiting[W]], offset: int, error: ErrorCode) -> list[Woken[W]]:
    """Take out those that wait for no more than this."""
    woken = []
    while waiting and waiting[0].offset <= offset:
        woken.append(Woken(waiting.popleft().waiter, error))
    return woken


class PartitionReplication(Generic[W]):
    """The state of one partition on one broker. ``W`` is whatever waits for a commit."""

    __slots__ = (
        "_assignment",
        "_brokers",
        "_change",
        "_commits",
        "_deletions",
        "_epoch_start_offset",
        "_followers",
        "_lag_ms_max",
        "_min_isr_asked",
        "_next_deadline_ms",
        "_node_id",
        "high_watermark",
        "is_leader",
        "isr",
        "leader_epoch",
        "log_end_offset",
        "log_start_offset",
        "maximal_isr",
        "min_isr",
        "partition_epoch",
    )

    def __init__(
        self,
        node_id: BrokerId,
        *,
        log_start_offset: int,
        log_end_offset: int,
        high_watermark: int,
        lag_ms_max: int = REPLICA_LAG_MS_MAX,
    ) -> None:
        self._node_id = node_id
        self._lag_ms_max = lag_ms_max
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = high_watermark
        self.is_leader = False
        self.leader_epoch = self.partition_epoch = -1
        #: The committed ISR, and the same with the replica that is about to come in.
        self.isr: tuple[BrokerId, ...] = ()
        self.maximal_isr: tuple[BrokerId, ...] = ()
        self._assignment: Assignment | None = None
        self._change: WantedIsr | None = None
        #: How many replicas must be in sync for acks=all: no more than there are at all.
        self.min_isr = self._min_isr_asked = 1
        self._epoch_start_offset = log_end_offset
        self._followers: dict[BrokerId, Follower] = {}
        self._brokers: Mapping[BrokerId, int] = {}
        # Both in the order of offsets. None while nobody waits: an empty queue takes 760 bytes.
        self._commits: deque[_Waiting[W]] | None = None
        self._deletions: deque[_Waiting[W]] | None = None
        # Nobody's time is up before this. Whoever it was set for may have been woken meanwhile.
        self._next_deadline_ms: int | None = None

    # What is known

    @property
    def is_catching_up(self) -> bool:
        """Whether a new leader does not know yet how far its predecessors' records are committed.

        Until its high watermark reaches the offset at which it began to lead, the end that it would
        tell consumers may be one that they have already passed (KIP-207).
        """
        return self.is_leader and self.high_watermark < self._epoch_start_offset

    @property
    def wanted_isr(self) -> WantedIsr | None:
        """The change of the ISR that was asked for and is not answered."""
        return self._change

    @property
    def low_watermark(self) -> int:
        """The lowest log start of the replicas whose brokers are alive."""
        starts = [
            follower.log_start_offset
            for broker, follower in self._followers.items()
            if broker in self._brokers
        ]
        return min(self.log_start_offset, *starts) if starts else self.log_start_offset

    @property
    def next_deadline_ms(self) -> int | None:
        """When to ask for ``expire``; it may find nobody then. None if nobody waits."""
        return self._next_deadline_ms

    @property
    def waiting_count(self) -> int:
        """How many wait."""
        return len(self._commits or ()) + len(self._deletions or ())

    def follower(self, broker: BrokerId) -> Follower | None:
        """Return what is known of a follower; None if it is none, or this is not the leader."""
        return self._followers.get(broker)

    def readable_followers(self, offset: int) -> Iterator[tuple[BrokerId, Follower]]:
        """Return the members of the ISR that have an offset, as far as is known here (KIP-392)."""
        for broker, follower in self._followers.items():
            if broker in self.isr and (
                follower.log_start_offset <= offset <= follower.log_end_offset
            ):
                yield broker, follower

    # Events

    def assigned(self, assignment: Assignment, now_ms: int) -> Effects[W]:
        """Take in what the metadata log says. It overrides everything but newer entries of it."""
        if assignment.partition_epoch < self.partition_epoch:
            return self._nothing()
        was_leader, old_epoch = self.is_leader, self.leader_epoch
        self._assignment = assignment
        self._bound_min_isr()
        if self._change is None or assignment.partition_epoch > self.partition_epoch:
            self._change = None
            self.isr = self.maximal_isr = assignment.isr
        # Else this is what the controller has answered before. Stricter than Kafka: what was asked
        # for since may still be granted, so it counts.
        self.leader_epoch = assignment.leader_epoch
        self.partition_epoch = assignment.partition_epoch
        self.is_leader = assignment.leader == self._node_id
        if not self.is_leader:
            self._followers.clear()
            effects = self.failed(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if assignment.replicas == (self._node_id,):
                # There is no other replica: all of them have everything.
                return effects._replace(high_watermark=self._move_to(self.log_end_offset))
            return effects
        known = self._followers
        self._followers = {
            broker: known.get(broker) or Follower()
            for broker in assignment.replicas
            if broker != self._node_id
        }
        if assignment.leader_epoch != old_epoch or not was_leader:
            self._epoch_start_offset = self.log_end_offset
            # Stricter than Kafka: where an epoch was missed, another may have led in it, and
            # followers may have other records by now than those that they fetched here.
            was_leader = was_leader and assignment.leader_epoch == old_epoch + 1
            for broker, follower in self._followers.items():
                follower.reset(
                    now_ms,
                    self.log_end_offset,
                    in_isr=broker in assignment.isr,
                    is_new_leader=not was_leader,
                )
        return self._advance(now_ms)

    def appended(self, log_end_offset: int, now_ms: int) -> Effects[W]:
        """Take in that the leader's log ends further on, and all of it is written."""
        self.log_end_offset = log_end_offset
        return self._advance(now_ms) if self.is_leader else self._nothing()

    def commit_alone(self, log_end_offset: int) -> bool:
        """Do as ``appended`` does, if nobody else has to hear of it: all of it is committed then.

        False, with nothing changed, if there are other replicas, or somebody waits.
        """
        if (
            self._followers
            or self._commits is not None
            or not self.is_leader
            or len(self.isr) < self.min_isr
        ):
            return False
        self.log_end_offset = self.high_watermark = log_end_offset
        return True

    def replicated(self, log_start_offset: int, log_end_offset: int, high_watermark: int) -> None:
        """Take in where a follower's log stands; its high watermark may go back (F14)."""
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = high_watermark

    def fetched(
        self,
        broker: BrokerId,
        offset: int,
        log_start_offset: int,
        now_ms: int,
        broker_epoch: int = UNKNOWN_BROKER_EPOCH,
    ) -> Effects[W]:
        """Take in that a follower asks for ``offset``, so it has what is below."""
        follower = self._followers.get(broker)
        known_epoch = self._brokers.get(broker, UNKNOWN_BROKER_EPOCH)
        if follower is None or UNKNOWN_BROKER_EPOCH < broker_epoch < known_epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {broker} is no follower here"
            )
        follower.fetched(offset, log_start_offset, self.log_end_offset, now_ms, broker_epoch)
        wanted = self._expand(broker, follower)
        high_watermark, _, woken = self._advance(now_ms)
        if self._deletions is not None:
            woken = [*woken, *self._wake_deletions(self._deletions)]
        return Effects(high_watermark, wanted, woken)

    def log_start_moved(self, log_start_offset: int) -> Effects[W]:
        """Take in that the leader's log begins further on."""
        self.log_start_offset = log_start_offset
        if self._deletions is None:
            return self._nothing()
        return Effects(woken=self._wake_deletions(self._deletions))

    def brokers_changed(self, epochs: Mapping[BrokerId, int]) -> None:
        """Take in which brokers are neither fenced nor shutting down, with their epochs."""
        self._brokers = epochs

    def min_isr_changed(self, min_isr: int, now_ms: int) -> Effects[W]:
        """Take in another min.insync.replicas."""
        self._min_isr_asked = min_isr
        self._bound_min_isr()
        return self._advance(now_ms) if self.is_leader else self._nothing()

    def _bound_min_isr(self) -> None:
        self.min_isr = self._min_isr_asked
        if self._assignment is not None:
            self.min_isr = min(self.min_isr, len(self._assignment.replicas))

    def check_lag(self, now_ms: int) -> Effects[W]:
        """Ask for an ISR without those that have fallen behind; called now and then."""
        if not self.is_leader or self._change is not None:
            return self._nothing()
        staying = tuple(
            broker
            for broker in self.isr
            if (follower := self._followers.get(broker)) is None
            or follower.is_caught_up(self.log_end_offset, now_ms, self._lag_ms_max)
        )
        if staying == self.isr:
            return self._nothing()
        return Effects(wanted_isr=self._ask(staying, is_expansion=False))

    def isr_answered(
        self,
        error: ErrorCode,
        now_ms: int,
        *,
        leader_epoch: int = -1,
        partition_epoch: int = -1,
        isr: tuple[BrokerId, ...] = (),
    ) -> Effects[W]:
        """Take in the controller's answer to what was asked for."""
        change = self._change
        if change is None or error in _WAIT_FOR_METADATA:
            return self._nothing()
        if error is ErrorCode.NONE:
            if leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
                return self._nothing()
            self.isr, self.partition_epoch = isr, partition_epoch
        elif error not in _REFUSED:
            return Effects(wanted_isr=change)
        self._change, self.maximal_isr = None, self.isr
        return self._advance(now_ms)

    def failed(self, error: ErrorCode) -> Effects[W]:
        """Take in that what was appended will not be committed here: nobody need wait."""
        waiting = (*(self._commits or ()), *(self._deletions or ()))
        woken = [Woken(each.waiter, error) for each in waiting]
        self._commits = self._deletions = None
        self._next_deadline_ms = None
        return Effects(woken=woken) if woken else self._nothing()

    # Who waits

    def wait_for_commit(self, offset: int, deadline_ms: int, waiter: W) -> None:
        """Have someone woken when everything below ``offset`` is committed.

        It must not be yet, and this must be the leader: else nobody would ever say so.
        """
        self._check_waits(offset > self.high_watermark)
        if self._commits is None:
            self._commits = deque()
        self._wait(self._commits, offset, deadline_ms, waiter)

    def wait_for_deletion(self, offset: int, deadline_ms: int, waiter: W) -> None:
        """Have someone woken when no replica that is alive has records below ``offset``."""
        self._check_waits(offset > self.low_watermark)
        if self._deletions is None:
            self._deletions = deque()
        self._wait(self._deletions, offset, deadline_ms, waiter)

    def expire(self, now_ms: int) -> list[W]:
        """Take out those whose time is up."""
        expired: list[W] = []
        following: int | None = None
        for waiting in (self._commits, self._deletions):
            if waiting is None:
                continue
            kept = [each for each in waiting if each.deadline_ms > now_ms]
            if len(kept) < len(waiting):
                expired += [each.waiter for each in waiting if each.deadline_ms <= now_ms]
                waiting.clear()
                waiting.extend(kept)
            if kept:
                earliest = min(each.deadline_ms for each in kept)
                following = earliest if following is None else min(following, earliest)
        self._next_deadline_ms = following
        return expired

    def _check_waits(self, is_outstanding: bool) -> None:
        if not (self.is_leader and is_outstanding):
            raise ValueError("there is nothing to wait for")

    def _wait(self, waiting: deque[_Waiting[W]], offset: int, deadline_ms: int, waiter: W) -> None:
        entry = _Waiting(offset, deadline_ms, waiter)
        if not waiting or waiting[-1].offset <= offset:
            waiting.append(entry)
        else:
            # A producer has repeated what it sent before.
            place = next(at for at, each in enumerate(waiting) if each.offset > offset)
            waiting.insert(place, entry)
        if self._next_deadline_ms is None or deadline_ms < self._next_deadline_ms:
            self._next_deadline_ms = deadline_ms

    # What follows

    def _nothing(self) -> Effects[W]:
        return NOTHING  # type: ignore[return-value]

    def _advance(self, now_ms: int) -> Effects[W]:
        offset = self.log_end_offset
        if offset <= self.high_watermark or len(self.isr) < self.min_isr:
            return self._nothing()
        if self._followers:
            offset = self._replicated_end(now_ms)
            if offset <= self.high_watermark:
                return self._nothing()
        self.high_watermark = offset
        commits = self._commits
        woken = () if commits is None else self._wake_commits(commits)
        return _new(Effects, (offset, None, woken))

    def _replicated_end(self, now_ms: int) -> int:
        """Return the offset below which all replicas that count have everything."""
        offset = self.log_end_offset
        for broker, follower in self._followers.items():
            if follower.log_end_offset < offset and (
                broker in self.maximal_isr
                or (
                    follower.is_caught_up(self.log_end_offset, now_ms, self._lag_ms_max)
                    and self._may_join(broker, follower)
                )
            ):
                offset = follower.log_end_offset
        return offset

    def _move_to(self, offset: int) -> int | None:
        if offset <= self.high_watermark:
            return None
        self.high_watermark = offset
        return offset

    def _wake_commits(self, commits: deque[_Waiting[W]]) -> list[Woken[W]]:
        error = ErrorCode.NONE
        if len(self.maximal_isr) < self.min_isr:
            error = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        woken = _reached(commits, self.high_watermark, error)
        if not commits:
            self._commits = None
        return woken

    def _wake_deletions(self, deletions: deque[_Waiting[W]]) -> list[Woken[W]]:
        woken = _reached(deletions, self.low_watermark, ErrorCode.NONE)
        if not deletions:
            self._deletions = None
        return woken

    def _expand(self, broker: BrokerId, follower: Follower) -> WantedIsr | None:
        if (
            broker in self.isr
            or self._change is not None
            or follower.log_end_offset < max(self.high_watermark, self._epoch_start_offset)
            or not self._may_join(broker, follower)
        ):
            return None
        wanted = self._ask((*self.isr, broker), is_expansion=True)
        self.maximal_isr = (*self.isr, broker)
        return wanted

    def _may_join(self, broker: BrokerId, follower: Follower) -> bool:
        epoch = self._brokers.get(broker)
        return epoch is not None and follower.broker_epoch in (UNKNOWN_BROKER_EPOCH, epoch)

    def _ask(self, isr: tuple[BrokerId, ...], *, is_expansion: bool) -> WantedIsr:
        self._change = WantedIsr(
            self.leader_epoch,
            self.partition_epoch,
            tuple((broker, self._epoch_of(broker)) for broker in isr),
            is_expansion,
        )
        return self._change

    def _epoch_of(self, broker: BrokerId) -> int:
        follower = self._followers.get(broker)
        if follower is not None:
            return follower.broker_epoch
        return self._brokers.get(broker, UNKNOWN_BROKER_EPOCH)
