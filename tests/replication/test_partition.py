"""A partition's leader beside a naive model, and Kafka's rules one by one.

Rule numbers are those of the list of Kafka's replication rules that this was written from: G2
(caught up), G3 (a new leader epoch), G4 (who may fetch), G10-G13 (the ISR), G20-G22 (the high
watermark and who waits for it).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId
from dohle.replication.partition import Effects, PartitionReplication

ME, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
LAG_MS = 30_000
FOREVER_MS = 1 << 60


@dataclass(frozen=True)
class Place:
    leader: BrokerId = ME
    leader_epoch: int = 0
    partition_epoch: int = 0
    replicas: tuple[BrokerId, ...] = (ME, TWO, THREE)
    isr: tuple[BrokerId, ...] = (ME, TWO, THREE)


Machine = PartitionReplication[str]


def machine(place: Place, *, end: int = 0, high_watermark: int = 0, now_ms: int = 0) -> Machine:
    made: Machine = PartitionReplication(
        ME, log_start_offset=0, log_end_offset=end, high_watermark=high_watermark
    )
    made.brokers_changed({ME: 11, TWO: 12, THREE: 13})
    made.assigned(place, now_ms)
    return made


def woken(effects: Effects[str]) -> list[tuple[str, ErrorCode]]:
    return [(each.waiter, each.error) for each in effects.woken]


class Naive:
    """All that ever happened, from which everything is computed anew."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.maximal = set(place.isr)
        self.min_isr = 1
        self.end = 0
        self.ends: dict[BrokerId, int] = {}
        self.caught_up_ms = {each: 0 if each in place.isr else -FOREVER_MS for each in (TWO, THREE)}
        self.fetches: dict[BrokerId, tuple[int, int]] = {}
        self.high_watermark = 0

    def fetched(self, broker: BrokerId, offset: int, now_ms: int) -> None:
        last = self.fetches.get(broker)
        if offset >= self.end:
            self.caught_up_ms[broker] = now_ms
        elif last is not None and offset >= last[1]:
            self.caught_up_ms[broker] = max(self.caught_up_ms[broker], last[0])
        self.fetches[broker] = (now_ms, self.end)
        self.ends[broker] = offset

    def is_caught_up(self, broker: BrokerId, now_ms: int) -> bool:
        at_end = self.ends.get(broker, -1) == self.end
        return at_end or now_ms - self.caught_up_ms[broker] <= LAG_MS

    def advance(self, now_ms: int) -> None:
        if len(self.place.isr) < min(self.min_isr, 3):
            return
        counted = {
            each for each in (TWO, THREE) if each in self.maximal or self.is_caught_up(each, now_ms)
        }
        lowest = min([self.end, *(self.ends.get(each, -1) for each in counted)])
        self.high_watermark = max(self.high_watermark, lowest)


class LeaderModel(RuleBasedStateMachine):
    """One leader epoch: appends, fetches, ISR changes, and time."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 100_000
        self.place = Place()
        self.real = machine(self.place, now_ms=self.now_ms)
        self.naive = Naive(self.place)
        self.naive.caught_up_ms = dict.fromkeys((TWO, THREE), self.now_ms)
        self.waiting: dict[str, int] = {}
        self.asked: set[BrokerId] | None = None
        self.told = 0

    def _take(self, effects: Effects[str]) -> None:
        self.naive.advance(self.now_ms)
        if effects.high_watermark is not None:
            assert effects.high_watermark == self.real.high_watermark > self.told
            self.told = effects.high_watermark
        assert self.real.high_watermark == self.told == self.naive.high_watermark
        due = {name for name, offset in self.waiting.items() if offset <= self.told}
        assert {name for name, _ in woken(effects)} == due
        for name, error in woken(effects):
            del self.waiting[name]
            enough = len(self.naive.maximal) >= min(self.naive.min_isr, 3)
            assert error is (
                ErrorCode.NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            )
        if effects.wanted_isr is not None:
            assert self.asked is None
            self.asked = {broker for broker, _ in effects.wanted_isr.isr}
            if effects.wanted_isr.is_expansion:
                assert self.asked > set(self.place.isr)
            else:
                assert self.asked < set(self.place.isr)

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        self.naive.end += count
        # There are others: their fetches decide.
        assert not self.real.commit_alone(self.naive.end)
        self._take(self.real.appended(self.naive.end, self.now_ms))

    @rule(broker=st.sampled_from([TWO, THREE]), data=st.data())
    def fetch(self, broker: BrokerId, data: st.DataObject) -> None:
        offset = data.draw(st.integers(max(0, self.naive.ends.get(broker, 0)), self.naive.end))
        self.naive.fetched(broker, offset, self.now_ms)
        joins = (
            broker not in self.place.isr
            and self.asked is None
            and offset >= self.naive.high_watermark
        )
        if joins:
            self.naive.maximal.add(broker)
        effects = self.real.fetched(broker, offset, 0, self.now_ms)
        assert (effects.wanted_isr is not None) == joins
        self._take(effects)

    @rule(ms=st.sampled_from([1, 400, LAG_MS, LAG_MS + 1]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def check_lag(self) -> None:
        behind = {
            each
            for each in self.place.isr
            if each != ME and not self.naive.is_caught_up(each, self.now_ms)
        }
        expected = set(self.place.isr) - behind if behind and self.asked is None else None
        effects = self.real.check_lag(self.now_ms)
        wanted = effects.wanted_isr
        assert (None if wanted is None else {each for each, _ in wanted.isr}) == expected
        if wanted is not None:
            self.asked = expected

    @precondition(lambda self: self.asked is not None)
    @rule(granted=st.booleans(), by_image=st.booleans())
    def controller_answers(self, granted: bool, by_image: bool) -> None:
        assert self.asked is not None
        if granted or by_image:
            # Metadata that refuses something tells of something else, which is newer.
            isr = tuple(sorted(self.asked)) if granted else self.place.isr
            epoch = self.place.partition_epoch + 1
            self.place = replace(self.place, isr=isr, partition_epoch=epoch)
        self.naive.place = self.place
        self.naive.maximal, self.asked = set(self.place.isr), None
        if by_image:
            self._take(self.real.assigned(self.place, self.now_ms))
        elif granted:
            self._take(
                self.real.isr_answered(
                    ErrorCode.NONE,
                    self.now_ms,
                    leader_epoch=0,
                    partition_epoch=self.place.partition_epoch,
                    isr=self.place.isr,
                )
            )
        else:
            self._take(self.real.isr_answered(ErrorCode.INELIGIBLE_REPLICA, self.now_ms))

    @rule(min_isr=st.integers(1, 4))
    def configure(self, min_isr: int) -> None:
        self.naive.min_isr = min_isr
        self._take(self.real.min_isr_changed(min_isr, self.now_ms))

    @precondition(lambda self: self.naive.end > self.told)
    @rule(data=st.data())
    def wait(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.told + 1, self.naive.end))
        name = f"w{len(self.waiting)}-{self.now_ms}-{offset}-{data.draw(st.integers(0, 1 << 30))}"
        if name not in self.waiting:
            self.waiting[name] = offset
            self.real.wait_for_commit(offset, FOREVER_MS, name)

    @invariant()
    def what_is_committed_is_on_every_replica_in_sync(self) -> None:
        """X1: what was acknowledged is on every member of the maximal ISR."""
        for broker in self.naive.maximal - {ME}:
            assert self.naive.ends.get(broker, 0) >= self.told
        assert self.real.waiting_count == len(self.waiting)
        assert set(self.real.maximal_isr) == self.naive.maximal


LeaderModel.TestCase.settings = settings(max_examples=200, stateful_step_count=40)
TestLeaderModel = LeaderModel.TestCase


def test_a_single_replica_commits_what_it_appends_at_once() -> None:
    alone = machine(Place(replicas=(ME,), isr=(ME,)), end=5)
    assert alone.high_watermark == 5
    assert alone.appended(9, 0).high_watermark == 9


@pytest.mark.parametrize("is_leader", [True, False])
@pytest.mark.parametrize("min_isr", [1, 2])
@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("replicas", [(ME,), (ME, TWO)])
def test_what_is_committed_alone_is_what_an_append_commits_while_nobody_waits(
    is_leader: bool, min_isr: int, waits: bool, replicas: tuple[BrokerId, ...]
) -> None:
    by_events, alone = (
        machine(Place(leader=ME if is_leader else TWO, replicas=replicas, isr=(ME,)), end=5)
        for _ in range(2)
    )
    for each in (by_events, alone):
        each.min_isr_changed(min_isr, 0)
        if waits and is_leader:
            each.wait_for_commit(7, 1_000, "producer")
    effects = by_events.appended(9, 0)
    if alone.commit_alone(9):
        assert (effects.high_watermark, effects.wanted_isr, len(effects.woken)) == (9, None, 0)
    else:
        assert len(replicas) > 1 or waits or not is_leader
        assert alone.appended(9, 0) == effects
    assert (alone.log_end_offset, alone.high_watermark) == (9, by_events.high_watermark)


def test_a_single_replica_has_everything_even_without_a_leader() -> None:
    place = Place(leader=BrokerId(-1), replicas=(ME,), isr=(ME,))
    assert machine(place, end=5, high_watermark=3).high_watermark == 5


def test_g2_a_follower_is_caught_up_as_of_the_fetch_after_which_it_had_everything() -> None:
    leader = machine(Place())
    leader.appended(10, 1_000)
    leader.fetched(TWO, 5, 0, 2_000)
    leader.appended(20, 3_000)
    leader.fetched(TWO, 10, 0, 4_000)
    found = leader.follower(TWO)
    assert found is not None
    # At 2000 the log ended at 10, which it has now.
    assert found.caught_up_ms == 2_000
    leader.fetched(TWO, 20, 0, 5_000)
    assert found.caught_up_ms == 5_000


def test_g3_a_new_leader_waits_for_one_fetch_of_each_member() -> None:
    leader = machine(Place(), end=10, high_watermark=4)
    assert leader.appended(11, 0).high_watermark is None
    assert leader.fetched(TWO, 10, 0, 1).high_watermark is None
    assert leader.fetched(THREE, 8, 0, 1).high_watermark == 8


def test_g3_a_leader_that_is_elected_again_knows_what_its_followers_have() -> None:
    leader = machine(Place(isr=(ME, TWO)), end=10)
    leader.fetched(TWO, 10, 0, 1)
    again = Place(isr=(ME, TWO), leader_epoch=1, partition_epoch=1)
    leader.assigned(again, 2)
    found = leader.follower(TWO)
    assert found is not None
    assert (found.log_end_offset, found.caught_up_ms) == (10, 2)


def test_a_leader_that_has_missed_an_epoch_knows_nothing_of_its_followers() -> None:
    """Stricter than G3: another may have led, and the follower may have been cut meanwhile."""
    leader = machine(Place(isr=(ME, TWO), replicas=(ME, TWO)), end=0)
    leader.appended(3, 1)
    leader.fetched(TWO, 2, 0, 1)
    leader.assigned(Place(isr=(ME, TWO), replicas=(ME, TWO), leader_epoch=2, partition_epoch=2), 2)
    assert leader.high_watermark == 2
    assert leader.appended(4, 3).high_watermark is None
    assert leader.fetched(TWO, 0, 0, 3).high_watermark is None


@pytest.mark.parametrize(("broker", "epoch"), [(BrokerId(9), -1), (TWO, 11)])
def test_g4_a_fetch_of_a_stranger_or_of_an_earlier_life_is_refused(
    broker: BrokerId, epoch: int
) -> None:
    leader = machine(Place())
    with pytest.raises(KafkaError) as refused:
        leader.fetched(broker, 0, 0, 0, epoch)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("offset", "epoch", "alive", "joins"),
    [
        (10, -1, True, True),
        (10, 12, True, True),
        (10, 13, True, False),
        (10, -1, False, False),
        (9, -1, True, False),
    ],
)
def test_g10_a_follower_joins_at_the_epoch_start_if_its_broker_may(
    offset: int, epoch: int, alive: bool, joins: bool
) -> None:
    leader = machine(Place(isr=(ME,)), end=10, high_watermark=3)
    if not alive:
        leader.brokers_changed({ME: 11})
    effects = leader.fetched(TWO, offset, 0, 0, epoch)
    assert (effects.wanted_isr is not None) == joins
    if effects.wanted_isr is not None:
        assert effects.wanted_isr.isr == ((ME, 11), (TWO, epoch))


def test_g11_all_that_have_fallen_behind_leave_at_once() -> None:
    leader = machine(Place())
    leader.appended(1, 0)
    assert leader.check_lag(LAG_MS).wanted_isr is None
    wanted = leader.check_lag(LAG_MS + 1).wanted_isr
    assert wanted is not None
    assert wanted.isr == ((ME, 11),)
    # G12: until the controller has agreed, they count.
    assert leader.appended(2, LAG_MS + 1).high_watermark is None
    assert leader.check_lag(LAG_MS + 2).wanted_isr is None


def test_g12_who_is_about_to_join_counts_for_the_high_watermark_only() -> None:
    leader = machine(Place(isr=(ME,), replicas=(ME, TWO)))
    leader.min_isr_changed(2, 0)
    leader.appended(5, 0)
    assert leader.fetched(TWO, 5, 0, 1).wanted_isr is not None
    assert (leader.isr, leader.maximal_isr) == ((ME,), (ME, TWO))
    assert leader.high_watermark == 0
    answered = leader.isr_answered(
        ErrorCode.NONE, 2, leader_epoch=0, partition_epoch=1, isr=(ME, TWO)
    )
    assert answered.high_watermark == 5


@pytest.mark.parametrize(
    ("code", "stays"),
    [
        (ErrorCode.INELIGIBLE_REPLICA, False),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, False),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        (ErrorCode.UNKNOWN_TOPIC_ID, True),
        (ErrorCode.FENCED_LEADER_EPOCH, True),
        (ErrorCode.INVALID_UPDATE_VERSION, True),
        (ErrorCode.INVALID_REQUEST, True),
        (ErrorCode.NEW_LEADER_ELECTED, True),
    ],
)
def test_g13_a_refusal_goes_back_and_what_is_out_of_date_waits_for_metadata(
    code: ErrorCode, stays: bool
) -> None:
    leader = machine(Place(isr=(ME,)))
    leader.fetched(TWO, 0, 0, 0)
    assert leader.isr_answered(code, 1).wanted_isr is None
    assert (TWO in leader.maximal_isr) == stays
    leader.assigned(Place(isr=(ME,), partition_epoch=1), 2)
    assert leader.maximal_isr == (ME,)


def test_g13_any_other_error_has_the_same_asked_again() -> None:
    leader = machine(Place(isr=(ME,)))
    wanted = leader.fetched(TWO, 0, 0, 0).wanted_isr
    assert wanted is not None
    assert leader.isr_answered(ErrorCode.REQUEST_TIMED_OUT, 1).wanted_isr == wanted


def test_g13_older_metadata_changes_nothing() -> None:
    leader = machine(Place(isr=(ME, TWO), partition_epoch=5))
    leader.assigned(Place(isr=(ME,), partition_epoch=4), 0)
    assert leader.isr == (ME, TWO)


def test_what_is_asked_for_counts_when_metadata_tells_what_was_answered_before() -> None:
    """Stricter than G13: the request may still be granted, to one who must have everything."""
    leader = machine(Place(isr=(ME,)))
    leader.appended(1, 0)
    leader.fetched(TWO, 1, 0, 0, 12)
    isr = (ME, TWO)
    leader.isr_answered(ErrorCode.NONE, 0, leader_epoch=0, partition_epoch=1, isr=isr)
    leader.appended(3, 50_000)
    assert leader.fetched(THREE, 1, 0, 50_000, 13).wanted_isr is not None
    leader.assigned(Place(isr=isr, partition_epoch=1), 50_000)
    assert set(leader.maximal_isr) == {ME, TWO, THREE}
    assert leader.fetched(TWO, 3, 0, 50_000, 12).high_watermark is None
    leader.assigned(Place(isr=(ME, TWO), partition_epoch=2), 50_000)
    assert set(leader.maximal_isr) == {ME, TWO}, "there is newer: what was asked for is refused"


def test_g20_below_min_isr_nothing_is_committed() -> None:
    leader = machine(Place(isr=(ME,)), now_ms=100_000)
    leader.min_isr_changed(2, 100_000)
    assert leader.appended(5, 100_000).high_watermark is None
    assert leader.min_isr_changed(1, 200_000).high_watermark == 5


def test_g20_no_more_replicas_are_asked_for_than_there_are() -> None:
    leader = machine(Place(isr=(ME,), replicas=(ME,)))
    leader.min_isr_changed(3, 0)
    assert leader.appended(5, 0).high_watermark == 5


def test_g21_a_follower_that_is_about_to_join_is_waited_for() -> None:
    leader = machine(Place(isr=(ME,), replicas=(ME, TWO)), now_ms=100_000)
    leader.appended(5, 100_000)
    assert leader.high_watermark == 5
    leader.fetched(TWO, 4, 0, 100_001)
    # It lacks one, and was never caught up: nobody waits for it.
    assert leader.appended(6, 100_002).high_watermark == 6
    leader.fetched(TWO, 6, 0, 100_003)
    assert leader.appended(7, 100_004).high_watermark is None


def test_h10_who_leaves_by_a_controlled_shutdown_holds_nothing_up() -> None:
    """KAFKA-15021: its epoch is not bumped, and it is caught up still, but may not join."""
    leader = machine(Place())
    leader.appended(5, 1)
    leader.fetched(TWO, 5, 0, 2, 12)
    leader.fetched(THREE, 5, 0, 2, 13)
    leader.brokers_changed({ME: 11, THREE: 13})
    leader.assigned(Place(isr=(ME, THREE), partition_epoch=1), 3)
    leader.appended(6, 4)
    assert leader.fetched(THREE, 6, 0, 5, 13).high_watermark == 6


def test_h11_an_answer_that_comes_after_newer_metadata_changes_nothing() -> None:
    """KAFKA-12686: nothing is stuck, one change is asked for at a time, the newest epoch wins."""
    leader = machine(Place(isr=(ME,)))
    leader.appended(1, 0)
    first = leader.fetched(TWO, 1, 0, 0, 12).wanted_isr
    assert first is not None
    assert leader.fetched(THREE, 1, 0, 0, 13).wanted_isr is None, "one at a time"
    leader.assigned(Place(isr=(ME, THREE), partition_epoch=5), 1)
    late = (ME, TWO)
    leader.isr_answered(ErrorCode.NONE, 1, leader_epoch=0, partition_epoch=1, isr=late)
    assert (leader.isr, leader.partition_epoch, leader.wanted_isr) == ((ME, THREE), 5, None)
    again = leader.fetched(TWO, 1, 0, 2, 12).wanted_isr
    assert again is not None
    assert again.partition_epoch == 5
    leader.isr_answered(ErrorCode.NONE, 2, leader_epoch=0, partition_epoch=1, isr=late)
    assert leader.wanted_isr is again, "an older answer is none to this"
    isr = (ME, THREE, TWO)
    leader.isr_answered(ErrorCode.NONE, 3, leader_epoch=0, partition_epoch=6, isr=isr)
    assert leader.isr == isr
    leader.appended(2, 4)
    assert leader.check_lag(100_000).wanted_isr is not None, "nothing is in flight any more"


def test_h6_nobody_joins_at_a_high_watermark_that_lags_behind_the_epoch_start() -> None:
    """KAFKA-7128: the new leader's high watermark may be less than what was acknowledged."""
    leader = machine(Place(isr=(ME,)), end=10, high_watermark=3)
    assert leader.fetched(TWO, 3, 0, 0, 12).wanted_isr is None
    assert leader.fetched(TWO, 10, 0, 0, 12).wanted_isr is not None


def test_g3_a_clock_that_was_just_set_going_makes_nobody_caught_up() -> None:
    leader = machine(Place(isr=(ME, THREE)), now_ms=5)
    leader.appended(4, 6)
    leader.fetched(THREE, 4, 0, 7, 13)
    assert leader.high_watermark == 4, "broker 2 has never fetched, and is no member"


def test_f14_a_follower_takes_over_where_its_log_stands() -> None:
    follower = machine(Place(leader=TWO), end=3, high_watermark=3)
    follower.replicated(1, 9, 2)
    follower.assigned(Place(leader_epoch=1, partition_epoch=1, isr=(ME,)), 1)
    assert (follower.log_end_offset, follower.high_watermark) == (9, 9)
    assert not follower.is_catching_up


def test_g22_who_waits_is_woken_in_the_order_of_offsets() -> None:
    leader = machine(Place(isr=(ME, TWO), replicas=(ME, TWO)))
    leader.appended(10, 0)
    for offset, name in ((5, "five"), (8, "eight"), (3, "three"), (10, "ten")):
        leader.wait_for_commit(offset, FOREVER_MS, name)
    assert woken(leader.fetched(TWO, 8, 0, 1)) == [
        ("three", ErrorCode.NONE),
        ("five", ErrorCode.NONE),
        ("eight", ErrorCode.NONE),
    ]
    assert leader.waiting_count == 1


def test_g22_who_waits_is_told_when_the_leader_is_another() -> None:
    leader = machine(Place(isr=(ME, TWO)))
    leader.appended(10, 0)
    leader.wait_for_commit(5, FOREVER_MS, "five")
    lost = leader.assigned(Place(leader=TWO, leader_epoch=1, partition_epoch=1), 1)
    assert woken(lost) == [("five", ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    with pytest.raises(ValueError):
        leader.wait_for_commit(6, FOREVER_MS, "six")


def test_those_whose_time_is_up_are_taken_out_and_the_others_wait_on() -> None:
    leader = machine(Place())
    leader.appended(10, 0)
    for offset, deadline_ms in ((5, 300), (6, 100), (7, 200), (8, 100)):
        leader.wait_for_commit(offset, deadline_ms, f"{offset}")
    assert leader.next_deadline_ms == 100
    assert leader.expire(99) == []
    assert leader.expire(100) == ["6", "8"]
    assert leader.expire(300) == ["5", "7"]
    assert leader.waiting_count == 0


def test_nobody_waits_for_what_is_committed() -> None:
    leader = machine(Place(isr=(ME,), replicas=(ME,)), end=5)
    with pytest.raises(ValueError):
        leader.wait_for_commit(5, FOREVER_MS, "five")


def test_records_are_deleted_when_every_broker_that_is_alive_has_deleted_them() -> None:
    leader = machine(Place(), end=10)
    leader.brokers_changed({ME: 11, TWO: 12})
    leader.fetched(TWO, 10, 0, 0)
    leader.log_start_moved(6)
    assert leader.low_watermark == 0
    leader.wait_for_deletion(6, FOREVER_MS, "six")
    assert woken(leader.fetched(TWO, 10, 5, 1)) == []
    assert woken(leader.fetched(TWO, 10, 7, 2)) == [("six", ErrorCode.NONE)]
    assert leader.low_watermark == 6
