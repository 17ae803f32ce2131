"""Where replicas should be: a plan that moves as few of them as possible. Pure.

Everything else is worth a move: replicas on brokers that are not wanted, two replicas of a
partition in one rack while another rack has none, and, if it is to be balanced, brokers that have
two replicas more than another. A replica that stays keeps its place in the order, and what comes in
place of one that goes takes over its place. Who leads is balanced by the order alone: that copies
nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

from dohle.core.ids import BrokerId, TopicPartition


def plan_replicas(
    current: Mapping[TopicPartition, Sequence[int]],
    brokers: Mapping[int, str | None],
    *,
    down: Mapping[int, str | None] | None = None,
    replication_factor: int | None = None,
    balance: bool = True,
) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """Return where every partition should be.

    ``brokers`` are those that may have replicas, with their racks: these count if every one has a
    rack. Those that are ``down`` keep what they have, and get nothing. Without ``balance`` only
    what has to move is moved. ValueError if there are too few brokers.
    """
    plan = _Plan(current, brokers, down or {}, replication_factor)
    plan.fill()
    if balance:
        plan.balance()
        # What comes in place of a leader leads: so that is settled at the end.
        plan.spread_leaders()
    return plan.assignment()


def moves(
    current: Mapping[TopicPartition, Sequence[int]], planned: Mapping[TopicPartition, Sequence[int]]
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the brokers to which each partition has to be copied, if there are any."""
    added = {
        key: tuple(each for each in replicas if each not in current.get(key, ()))
        for key, replicas in planned.items()
    }
    return {key: brokers for key, brokers in added.items() if brokers}


class _Plan:
    def __init__(
        self,
        current: Mapping[TopicPartition, Sequence[int]],
        brokers: Mapping[int, str | None],
        down: Mapping[int, str | None],
        replication_factor: int | None,
    ) -> None:
        #: Those that may get replicas.
        self._brokers = sorted(brokers)
        self._up = frozenset(brokers)
        racks = {**down, **brokers}
        are_racks_known = all(rack is not None for rack in racks.values())
        self._racks = {each: rack if are_racks_known else None for each, rack in racks.items()}
        self._rack_sizes = Counter(self._racks.values())
        self._load: Counter[int] = Counter(dict.fromkeys(racks, 0))
        self._leads: Counter[int] = Counter(dict.fromkeys(racks, 0))
        self._current = current
        self._factors = {
            key: replication_factor or len(replicas) for key, replicas in current.items()
        }
        #: Those that are decided, in their places; None where one has gone.
        self._slots: dict[TopicPartition, list[int | None]] = {}
        self._on: defaultdict[int, dict[TopicPartition, None]] = defaultdict(dict)
        for key in sorted(current):
            self._keep(key)

    def _keep(self, key: TopicPartition) -> None:
        """Keep what may stay, as far as racks and the number allow."""
        slots: list[int | None] = []
        factor = self._factors[key]
        per_rack: Counter[str | None] = Counter()
        for broker in self._current[key]:
            rack = self._racks.get(broker)
            fits = broker in self._racks and per_rack[rack] < self._rack_limit(factor, rack)
            slots.append(broker if fits else None)
            if fits:
                per_rack[rack] += 1
        kept = [broker for broker in slots if broker is not None]
        # With fewer replicas the last ones go; with more, new ones come at the end.
        while len(slots) > factor:
            if None in slots:
                slots.remove(None)
            else:
                slots.pop()
        slots += [None] * (factor - len(slots))
        self._slots[key] = slots
        for broker in kept:
            if broker in slots:
                self._take(key, broker)

    def _rack_limit(self, factor: int, rack: str | None) -> int:
        """Return how many replicas of a partition a rack should have at most.

        Small racks may not have enough brokers for an equal share: then others have more.
        """
        for limit in range(1, factor):
            if sum(min(limit, size) for size in self._rack_sizes.values()) >= factor:
                break
        else:
            limit = factor
        return min(limit, self._rack_sizes[rack])

    def _take(self, key: TopicPartition, broker: int) -> None:
        self._load[broker] += 1
        self._on[broker][key] = None

    def _release(self, key: TopicPartition, broker: int) -> None:
        self._load[broker] -= 1
        del self._on[broker][key]

    def _may_have(self, key: TopicPartition, broker: int, instead: int | None = None) -> bool:
        slots = self._slots[key]
        if broker in slots:
            return False
        rack = self._racks[broker]
        beside = sum(
            self._racks[each] == rack for each in slots if each is not None and each != instead
        )
        return beside < self._rack_limit(self._factors[key], rack)

    def fill(self) -> None:
        """Find brokers for the replicas that have none."""
        for key, slots in self._slots.items():
            for place, broker in enumerate(slots):
                if broker is None:
                    found = self._lightest(key)
                    slots[place] = found
                    self._take(key, found)

    def _lightest(self, key: TopicPartition) -> int:
        fitting = [each for each in self._brokers if self._may_have(key, each)]
        # Racks may be taken up such that none fits: then any broker is better than none.
        fitting = fitting or [each for each in self._brokers if each not in self._slots[key]]
        if not fitting:
            raise ValueError(
                f"{key} is to have {self._factors[key]} replicas, and there are too few brokers"
            )
        # One that has it already copies nothing.
        return min(
            fitting, key=lambda each: (self._load[each], each not in self._current[key], each)
        )

    def balance(self) -> None:
        """Move replicas from brokers with many to brokers with few, each once."""
        while self._move_one():
            pass

    def _move_one(self) -> bool:
        by_load = sorted(self._brokers, key=lambda each: (-self._load[each], each))
        for heavy in by_load:
            for light in reversed(by_load):
                if self._load[heavy] - self._load[light] < 2:
                    break
                key = self._movable(heavy, light)
                if key is not None:
                    slots = self._slots[key]
                    slots[slots.index(heavy)] = light
                    self._release(key, heavy)
                    self._take(key, light)
                    return True
        return False

    def _movable(self, heavy: int, light: int) -> TopicPartition | None:
        """Return a partition that may go from one to the other: rather one that moves anyway."""
        found = None
        for key in self._on[heavy]:
            if self._may_have(key, light, instead=heavy):
                if heavy not in self._current[key] or light in self._current[key]:
                    return key
                found = found or key
        return found

    def spread_leaders(self) -> None:
        """Count who would lead, and let others lead where one would lead too many."""
        led: defaultdict[int, dict[TopicPartition, None]] = defaultdict(dict)
        for key, slots in self._slots.items():
            first = slots[0]
            assert first is not None
            self._leads[first] += 1
            led[first][key] = None
        while self._let_another_lead(led):
            pass

    def _let_another_lead(self, led: Mapping[int, dict[TopicPartition, None]]) -> bool:
        for heavy, count in sorted(self._leads.items(), key=itemgetter(1), reverse=True):
            for key in led[heavy]:
                slots = self._slots[key]
                others = [each for each in slots[1:] if each is not None and each in self._up]
                light = min(others, key=lambda each: (self._leads[each], each), default=None)
                if light is not None and count - self._leads[light] >= 2:
                    place = slots.index(light)
                    slots[0], slots[place] = light, heavy
                    self._leads[heavy] -= 1
                    self._leads[light] += 1
                    del led[heavy][key]
                    led[light][key] = None
                    return True
        return False

    def assignment(self) -> dict[TopicPartition, tuple[BrokerId, ...]]:
        return {key: tuple(_ids(slots)) for key, slots in self._slots.items()}


def _ids(slots: Iterable[int | None]) -> list[BrokerId]:
    return [BrokerId(each) for each in slots if each is not None]
