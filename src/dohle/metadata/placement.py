"""Chooses the brokers for the replicas of new partitions.

Racks take turns, and within a rack its brokers do; both start at a random position and advance by
one with every partition, so that leaders and the load of a lost broker spread evenly. After as many
partitions as there are brokers the order is shuffled, or the same sets of brokers would recur. Two
rules have no exception: no broker holds two replicas of a partition, and the first replica, which
will lead, is not fenced. A fenced broker is used only if its rack has no other left. Brokers
without a rack form one rack.
"""

from __future__ import annotations

from collections.abc import Iterable

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId
from dohle.core.seams import Rng
from dohle.metadata.image import BrokerRegistration


def place_replicas(
    brokers: Iterable[BrokerRegistration],
    partitions: int,
    replication_factor: int,
    rng: Rng,
) -> list[tuple[BrokerId, ...]]:
    """Return the replicas of each partition; INVALID_REPLICATION_FACTOR if there are too few."""
    # A broker in controlled shutdown gets no new replicas; once it is down, it counts as fenced.
    usable = [broker for broker in brokers if broker.fenced or not broker.in_controlled_shutdown]
    if replication_factor <= 0:
        raise _refused(f"The replication factor must be positive, not {replication_factor}.")
    if all(broker.fenced for broker in usable):
        raise _refused("All brokers are currently fenced.")
    if replication_factor > len(usable):
        raise _refused(
            f"The target replication factor of {replication_factor} cannot be reached because "
            f"only {len(usable)} broker(s) are registered."
        )
    cluster = _Racks(usable, rng)
    return [cluster.place(replication_factor) for _ in range(partitions)]


class _Ring:
    """Some brokers of a rack in turn: each once a round, and every round starts one further on."""

    def __init__(self, brokers: list[BrokerId], rng: Rng) -> None:
        self._brokers = sorted(brokers)
        self._start = rng.randrange(len(brokers)) if brokers else 0
        self._taken = 0
        self._round = 0

    def next(self, round_: int) -> BrokerId | None:
        """Return the next one; None when all of them had their turn in this round."""
        count = len(self._brokers)
        if count == 0:
            return None
        if round_ != self._round:
            self._round = round_
            self._taken = 0
            self._start = (self._start + 1) % count
        if self._taken == count:
            return None
        broker = self._brokers[(self._start + self._taken) % count]
        self._taken += 1
        return broker

    def shuffle(self, rng: Rng) -> None:
        rng.shuffle(self._brokers)


class _Rack:
    def __init__(self, brokers: list[BrokerRegistration], rng: Rng) -> None:
        self.unfenced = _Ring([each.id for each in brokers if not each.fenced], rng)
        self.fenced = _Ring([each.id for each in brokers if each.fenced], rng)

    def next(self, round_: int) -> BrokerId | None:
        broker = self.unfenced.next(round_)
        return self.fenced.next(round_) if broker is None else broker


class _Racks:
    def __init__(self, brokers: list[BrokerRegistration], rng: Rng) -> None:
        members: dict[str | None, list[BrokerRegistration]] = {}
        for broker in brokers:
            members.setdefault(broker.rack, []).append(broker)
        names = sorted(members, key=lambda name: (name is not None, name or ""))
        self._racks = [_Rack(members[name], rng) for name in names]
        self._unfenced_count = sum(not broker.fenced for broker in brokers)
        self._rng = rng
        self._start = rng.randrange(len(self._racks))
        self._round = 0

    def place(self, replication_factor: int) -> tuple[BrokerId, ...]:
        """Choose the brokers of the next partition."""
        if self._round == self._unfenced_count > 1:
            self._shuffle()
        self._start %= len(self._racks)
        leader, leader_rack = self._first()
        replicas = [leader]
        at = self._start
        while len(replicas) < replication_factor:
            if at == leader_rack:
                leader_rack = -1  # it had its turn; from now on it is like any other
            else:
                broker = self._racks[at].next(self._round)
                if broker is not None:
                    replicas.append(broker)
            at = (at + 1) % len(self._racks)
        self._round += 1
        self._start += 1
        return tuple(replicas)

    def _first(self) -> tuple[BrokerId, int]:
        at = self._start
        while True:
            broker = self._racks[at].unfenced.next(self._round)
            if broker is not None:
                return broker, at
            at = (at + 1) % len(self._racks)

    def _shuffle(self) -> None:
        self._rng.shuffle(self._racks)
        for rack in self._racks:
            rack.fenced.shuffle(self._rng)
            rack.unfenced.shuffle(self._rng)
        self._round = 0


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
