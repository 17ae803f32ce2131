"""Three replicas of a partition, each with both machines: leader's and follower's.

The controller here grants what the rules allow, elects members of the ISR, and is heard late;
brokers are killed (their disks keep what was written) and come back. Whatever happens in whatever
order: what a leader has told as committed is there for ever, at the same offset (X1).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import NamedTuple

import pytest

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId
from dohle.replication.partition import Effects, PartitionReplication, WantedIsr
from tests.replication.model_log import ModelLog

BROKERS = tuple(map(BrokerId, (1, 2, 3)))
NOBODY = BrokerId(-1)


@dataclass(frozen=True)
class Place:
    leader: BrokerId = BROKERS[0]
    leader_epoch: int = 0
    partition_epoch: int = 0
    replicas: tuple[BrokerId, ...] = BROKERS
    isr: tuple[BrokerId, ...] = BROKERS


class Answer(NamedTuple):
    """What the controller has to say of a change that was asked for."""

    wanted: WantedIsr
    error: ErrorCode
    place: Place


class Replica:
    """A broker's replica: the log stays when the broker is killed."""

    def __init__(self, id: BrokerId) -> None:
        self.id = id
        self.log = ModelLog()
        self.checkpoint = 0
        self.is_alive = True
        self.broker_epoch = 100

    def start(self, place: Place, brokers: dict[BrokerId, int], now_ms: int) -> None:
        self.is_alive = True
        self.log.high_watermark = min(self.checkpoint, self.log.log_end_offset)
        self.machine: PartitionReplication[str] = PartitionReplication(
            self.id,
            log_start_offset=0,
            log_end_offset=self.log.log_end_offset,
            high_watermark=self.log.high_watermark,
        )
        self.machine.brokers_changed(brokers)
        self.wanted: WantedIsr | None = None
        self.answer: Answer | None = None
        self.place = replace(place, partition_epoch=-1)
        self.hear(place, now_ms)

    def hear(self, place: Place, now_ms: int) -> None:
        """Take in what the metadata log says."""
        before, self.place = self.place, place
        log = self.log
        if not self.machine.is_leader:
            self.machine.replicated(0, log.log_end_offset, log.high_watermark)
        self.carry_out(self.machine.assigned(place, now_ms))
        if self.machine.is_leader:
            log.lead(place.leader_epoch)
        elif place.leader_epoch != before.leader_epoch:
            log.begin()

    def carry_out(self, effects: Effects[str]) -> None:
        if effects.high_watermark is not None:
            self.log.high_watermark = effects.high_watermark
        if effects.wanted_isr is not None:
            self.wanted = effects.wanted_isr


class ReplicatedPartition:
    """The partition, its brokers and its controller."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.place = Place()
        self.brokers = dict.fromkeys(BROKERS, 100)
        self.replicas = {id: Replica(id) for id in BROKERS}
        self.committed: dict[int, tuple[int, str]] = {}
        self.count = 0
        for replica in self.replicas.values():
            replica.start(self.place, self.brokers, self.now_ms)

    # The controller

    def _change(
        self, *, isr: tuple[BrokerId, ...] | None = None, leader: BrokerId | None = None
    ) -> None:
        place = self.place
        self.place = replace(
            place,
            partition_epoch=place.partition_epoch + 1,
            isr=place.isr if isr is None else isr,
            leader=place.leader if leader is None else leader,
            leader_epoch=place.leader_epoch + (leader is not None),
        )

    def _leave(self, broker: BrokerId) -> None:
        """Take a broker out of the ISR, unless it is the last, and off the lead."""
        isr = tuple(each for each in self.place.isr if each != broker) or self.place.isr
        if self.place.leader != broker:
            if isr != self.place.isr:
                self._change(isr=isr)
            return
        able = [each for each in isr if each in self.brokers and each != broker]
        self._change(isr=isr, leader=able[0] if able else NOBODY)

    def move_lead(self, broker: BrokerId) -> None:
        if broker in self.place.isr and broker in self.brokers:
            self._change(leader=broker)

    def decide(self, broker: BrokerId) -> None:
        """Decide about an AlterPartition: C30, as far as it concerns this."""
        replica = self.replicas[broker]
        wanted, replica.wanted = replica.wanted, None
        if wanted is None:
            return
        place, error = self.place, ErrorCode.NONE
        if wanted.leader_epoch < place.leader_epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif wanted.partition_epoch < place.partition_epoch:
            error = ErrorCode.INVALID_UPDATE_VERSION
        elif any(
            each not in self.brokers or epoch not in (-1, self.brokers[each])
            for each, epoch in wanted.isr
        ):
            error = ErrorCode.INELIGIBLE_REPLICA
        else:
            self._change(isr=tuple(each for each, _ in wanted.isr))
        replica.answer = Answer(wanted, error, self.place)

    # Brokers

    def hear(self, broker: BrokerId) -> None:
        if self.replicas[broker].is_alive:
            self.replicas[broker].hear(self.place, self.now_ms)

    def hear_answer(self, broker: BrokerId) -> None:
        replica = self.replicas[broker]
        answer, replica.answer = replica.answer, None
        machine = replica.machine
        if answer is not None and replica.is_alive and machine.wanted_isr is answer.wanted:
            place = answer.place
            effects = machine.isr_answered(
                answer.error,
                self.now_ms,
                leader_epoch=place.leader_epoch,
                partition_epoch=place.partition_epoch,
                isr=place.isr,
            )
            replica.carry_out(effects)

    def kill(self, broker: BrokerId) -> None:
        self.replicas[broker].is_alive = False

    def fence(self, broker: BrokerId) -> None:
        """Whoever is dead, or just silent, is no member any more."""
        self.brokers.pop(broker, None)
        self._leave(broker)

    def come_back(self, broker: BrokerId) -> None:
        replica = self.replicas[broker]
        if not replica.is_alive:
            # A new registration: it was not in sync meanwhile, whatever it has.
            self.brokers.pop(broker, None)
            self._leave(broker)
            replica.broker_epoch += 1
            replica.start(self.place, self.brokers, self.now_ms)
        self.brokers[broker] = replica.broker_epoch
        if self.place.leader == NOBODY and broker in self.place.isr:
            self._change(leader=broker)

    # Records

    def append(self, broker: BrokerId) -> None:
        """Append where a broker believes that it leads, which may be long past."""
        replica = self.replicas[broker]
        if replica.is_alive and replica.machine.is_leader:
            self.count += 1
            replica.log.append(replica.place.leader_epoch, f"r{self.count} ")
            replica.carry_out(replica.machine.appended(replica.log.log_end_offset, self.now_ms))

    def fetch(self, broker: BrokerId) -> None:
        replica = self.replicas[broker]
        if not replica.is_alive or replica.machine.is_leader or replica.place.leader == NOBODY:
            return
        leader = self.replicas[replica.place.leader]
        epoch = replica.place.leader_epoch
        if not (leader.is_alive and leader.machine.is_leader) or leader.place.leader_epoch != epoch:
            return
        asked = replica.log.ask(epoch)
        data, records = leader.log.serve(asked)
        if data.diverging_epoch.epoch < 0 and not data.error_code:
            try:
                effects = leader.machine.fetched(
                    replica.id, asked.fetch_offset, 0, self.now_ms, replica.broker_epoch
                )
            except KafkaError:
                return
            leader.carry_out(effects)
        replica.log.take(data, records, leader.log, epoch)

    def checkpoint(self, broker: BrokerId) -> None:
        self.replicas[broker].checkpoint = self.replicas[broker].log.high_watermark

    def pass_time(self, broker: BrokerId) -> None:
        self.now_ms += 12_000
        replica = self.replicas[broker]
        if replica.is_alive:
            replica.carry_out(replica.machine.check_lag(self.now_ms))

    # What must hold

    def check(self) -> None:
        alive = [replica for replica in self.replicas.values() if replica.is_alive]
        # Leaders first: theirs is the word.
        for replica in sorted(alive, key=lambda each: not each.machine.is_leader):
            log = replica.log
            for offset in range(log.high_watermark):
                if replica.machine.is_leader:
                    self.committed.setdefault(offset, log.at(offset))
                assert self.committed.get(offset) == log.at(offset), "what is committed stays"
        for broker in self.place.isr:
            log = self.replicas[broker].log
            assert log.log_end_offset >= len(self.committed), "members have all that is committed"
            for offset, record in self.committed.items():
                assert log.at(offset) == record, "members have all that is committed"


#: What happens, and how often.
_EVENTS = {
    ReplicatedPartition.hear: 12,
    ReplicatedPartition.fetch: 30,
    ReplicatedPartition.append: 10,
    ReplicatedPartition.decide: 10,
    ReplicatedPartition.hear_answer: 6,
    ReplicatedPartition.come_back: 6,
    ReplicatedPartition.checkpoint: 2,
    ReplicatedPartition.move_lead: 1,
    ReplicatedPartition.kill: 1,
    ReplicatedPartition.fence: 1,
    ReplicatedPartition.pass_time: 1,
}


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_what_is_committed_stays_whatever_happens(first: int) -> None:
    """X1, P1, P6; H1-H6 are among what happens."""
    events, weights = list(_EVENTS), list(_EVENTS.values())
    count = 0
    for seed in range(first, first + 100):
        rng = Random(seed)
        partition = ReplicatedPartition()
        for number, event in enumerate(rng.choices(events, weights, k=250)):
            event(partition, rng.choice(BROKERS))
            try:
                partition.check()
            except AssertionError as error:
                pytest.fail(f"seed {seed}, event {number}, {event.__name__}: {error}")
        count += len(partition.committed)
    assert count > 500, "enough has happened"
