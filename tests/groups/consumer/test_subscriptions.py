"""Consumer groups: subscriptions by a regular expression."""

from __future__ import annotations

import random
from typing import Any

import pytest

from dohle.coordination.effects import Effects
from dohle.core.errors import ErrorCode
from dohle.core.ids import GroupId
from dohle.core.seams import ManualClock
from dohle.groups.consumer.group import ConsumerGroup
from dohle.protocol.messages.records.consumer_group import ConsumerGroupRegularExpressionValue
from tests.groups.consumer.consumer_world import NO_DISK, SESSION_MS, Consumer, FakeTopics, World


def _world(**settings: Any) -> World:
    settings.setdefault("group_consumer_session_timeout_ms", 3_600_000)
    return World(FakeTopics(foo1=1, foo2=1, bar=1), **settings)


def _subscribed(world: World, name: str, regex: str, *topics: str) -> Consumer:
    """Join, and have the topics looked up."""
    consumer = world.joined(name, *topics, regex=regex)
    if not topics:
        consumer.topics = None
    world.advance(0)
    consumer.beat()
    return consumer


def test_the_topics_are_looked_up_after_the_heartbeat_that_brings_an_expression() -> None:
    world = _world()
    one = world.consumer("one", regex="foo.*")
    one.topics = None
    one.heartbeat()
    assert (one.epoch, one.owned) == (1, set())
    mark = len(world.driver.log)
    world.advance(0)
    assert world.written(mark) == ["RegularExpression", "Metadata"]
    value = world.records(mark)[0].value
    assert isinstance(value, ConsumerGroupRegularExpressionValue)
    assert value.topics == ("foo1", "foo2")
    assert (value.version, value.timestamp) == (3, world.driver.clock.now_ms())
    assert world.state() == "Assigning"
    one.beat()
    assert (one.epoch, one.owned) == (2, {("foo1", 0), ("foo2", 0)})


def test_an_expression_has_to_match_the_whole_name() -> None:
    world = _world()
    assert _subscribed(world, "one", "foo").owned == set()


def test_an_expression_that_matches_nothing_moves_no_epoch() -> None:
    world = _world()
    one = _subscribed(world, "one", "nothing")
    assert one.epoch == 1
    assert world.state() == "Stable"


@pytest.mark.parametrize("regex", ["(", "[z-a]", "a{2,1}", "(?=a)", r"\1"])
def test_what_is_no_expression_is_refused(regex: str) -> None:
    world = _world()
    consumer = world.consumer("one", regex=regex)
    assert consumer.refused() is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_names_and_an_expression_add_up() -> None:
    world = _world()
    one = _subscribed(world, "one", "foo1", "bar")
    assert one.owned == {("foo1", 0), ("bar", 0)}


def test_an_expression_that_is_known_already_is_taken_at_once() -> None:
    world = _world()
    one = _subscribed(world, "one", "foo.*")
    two = world.joined("two", regex="foo.*")
    assert two.epoch == 3
    world.settle(one, two)
    assert one.owned | two.owned == {("foo1", 0), ("foo2", 0)}
    assert len(one.owned) == len(two.owned) == 1


def test_an_expression_that_nobody_has_any_more_is_deleted() -> None:
    world = _world()
    one = _subscribed(world, "one", "foo.*")
    two = _subscribed(world, "two", "foo.*")
    mark = len(world.driver.log)
    two.leave()
    assert "-RegularExpression" not in world.written(mark)
    one.regex = "bar"
    one.heartbeat()
    assert "-RegularExpression" in world.written(mark)
    assert world.group.resolved_regexes == {}
    world.advance(10_001)
    one.heartbeat()
    one.revoke()
    world.advance(0)
    world.settle(one)
    assert one.owned == {("bar", 0)}


def test_the_expression_of_the_last_subscriber_that_leaves_is_deleted() -> None:
    world = _world()
    one = _subscribed(world, "one", "foo.*")
    mark = len(world.driver.log)
    one.leave()
    assert world.written(mark)[-2:] == ["-RegularExpression", "Metadata"]
    assert world.group.resolved_regexes == {}
    assert not world.group.is_subscribed_to("foo1")


def test_giving_an_expression_up_takes_its_topics_away() -> None:
    world = _world()
    one = _subscribed(world, "one", "foo.*", "bar")
    one.regex = ""
    one.heartbeat()
    assert one.assigned == {("bar", 0)}
    world.settle(one)
    assert one.owned == {("bar", 0)}


def test_another_expression_takes_the_old_topics_away_before_the_new_ones_are_known() -> None:
    world = _world()
    one = _subscribed(world, "one", "foo.*")
    epoch = one.epoch
    world.advance(10_001)
    one.regex = "bar"
    one.heartbeat()
    assert (one.epoch, one.assigned) == (epoch, set())
    world.settle(one)
    assert one.owned == {("bar", 0)}


def test_new_topics_are_found_with_the_next_heartbeat() -> None:
    world = _world()
    one = _subscribed(world, "one", "foo.*")
    world.topics.create("foo3", 1)
    world.topics_changed("foo3", created=True)
    world.advance(10_001)
    one.beat()
    world.advance(0)
    one.beat()
    assert ("foo3", 0) in one.owned


def test_topics_are_not_looked_up_more_often_than_every_ten_seconds() -> None:
    world = _world()
    one = _subscribed(world, "one", "foo.*")
    world.topics.create("foo3", 1)
    world.topics_changed("foo3", created=True)
    mark = len(world.driver.log)
    world.advance(10_000)
    one.beat()
    world.advance(0)
    assert len(world.driver.log) == mark
    world.advance(1)
    one.beat()
    world.advance(0)
    assert world.written(mark) == ["RegularExpression", "Metadata"]


def test_without_new_topics_they_are_looked_up_after_the_refresh_interval() -> None:
    world = _world(group_consumer_regex_refresh_interval_ms=60_000)
    one = _subscribed(world, "one", "foo.*")
    mark = len(world.driver.log)
    world.advance(60_000)
    one.beat()
    world.advance(0)
    assert len(world.driver.log) == mark
    world.advance(1)
    one.beat()
    world.advance(0)
    assert world.written(mark) == ["RegularExpression"]
    assert one.epoch == 2


def test_a_deleted_topic_is_taken_away_though_the_expression_still_has_it() -> None:
    world = _world()
    one = _subscribed(world, "one", "foo.*")
    world.topics.delete("foo2")
    world.topics_changed(deleted="foo2")
    one.beat()
    assert one.assigned == {("foo1", 0)}


def test_looking_up_is_tried_again_if_it_could_not_be_written() -> None:
    world = _world()
    one = world.joined("one", regex="foo.*")
    world.driver.append_error = NO_DISK
    world.advance(0)
    world.driver.append_error = None
    one.beat()
    world.advance(9_999)
    assert world.group.resolved_regexes == {}
    world.advance(1)
    one.beat()
    assert one.owned == {("foo1", 0), ("foo2", 0)}


class BusyClock(ManualClock):
    """Every look at it takes time, once it is switched on."""

    look_ms = 0

    def monotonic_ms(self) -> int:
        self.advance(self.look_ms)
        return super().monotonic_ms()


def _busy_world(topics: int, clock: BusyClock | None = None) -> tuple[World, BusyClock]:
    clock = clock or BusyClock()
    return World(FakeTopics(**{f"foo{number}": 1 for number in range(topics)}), clock), clock


def _take_turns(world: World) -> int:
    """Do what is due without a pause, as the runtime does; return how long that took."""
    began_ms = world.driver.clock.now_ms()
    while (effects := world.machine.expire()) is not None:
        world.driver.carry_out(effects)
    return world.driver.clock.now_ms() - began_ms


def test_many_topics_are_looked_up_piece_by_piece() -> None:
    world, clock = _busy_world(1_200)
    one = world.joined("one", regex="foo[0-9]*1")
    clock.look_ms = 6
    turns = 0
    while not world.group.resolved_regexes:
        _take_turns(world)
        clock.advance(30)
        turns += 1
        assert turns < 100
    clock.look_ms = 0
    assert turns > 2
    one.beat()
    assert len(one.owned) == 120


def test_between_two_turns_there_is_time_for_others_however_many_groups_look_up() -> None:
    world, clock = _busy_world(2_000)
    groups = [GroupId(f"group{number}") for number in range(8)]
    for group_id in groups:
        consumer = world.consumer("one", regex="foo[0-9]*1")
        world.send(consumer.request(group_id=group_id))
    clock.look_ms = 1
    took_ms = []
    for _ in range(400):
        took_ms.append(_take_turns(world))
        clock.advance(1)
    clock.look_ms = 0
    found = [world.machine.context.groups[group_id] for group_id in groups]
    assert all(isinstance(group, ConsumerGroup) and group.resolved_regexes for group in found)
    # A turn, and a look at the clock before and after it.
    assert max(took_ms) <= 10


def test_an_evil_expression_has_no_longer_turns_than_another() -> None:
    clock = BusyClock()
    letters = random.Random(1)
    names = ["".join(letters.choices("ab", k=249)) for _ in range(20)]
    world = World(FakeTopics(**dict.fromkeys(names, 1)), clock)
    world.joined("one", regex="(a|b)*a([ab]c?){400}")
    clock.look_ms = 6
    turns = 0
    while not world.group.resolved_regexes:
        _take_turns(world)
        clock.advance(30)
        turns += 1
    # Every look at the clock ends a turn: they are many for one name.
    assert turns > 5 * len(names)


def test_the_shards_of_a_broker_take_turns() -> None:
    one, clock = _busy_world(5_000)
    two, _ = _busy_world(5_000, clock)
    two.machine.context.turns = one.machine.context.turns
    for world in (one, two):
        world.joined("one", regex="foo[0-9]*1")
    clock.look_ms = 1
    assert one.machine.expire() == Effects()
    rest_until_ms = one.machine.context.turns.rest_until_ms
    while (effects := two.machine.expire()) is not None:
        assert effects == Effects()
    assert clock.monotonic_ms() < rest_until_ms
    assert one.machine.context.turns.rest_until_ms == rest_until_ms
    clock.look_ms = 0
    one.advance(1_000)
    two.advance(1_000)
    assert one.group.resolved_regexes
    assert two.group.resolved_regexes


def test_more_topics_than_can_be_written_are_given_up_for_a_while() -> None:
    topics = {f"foo{number:0>240}": 1 for number in range(200)}
    world = World(FakeTopics(**topics), group_consumer_session_timeout_ms=3_600_000)
    for number in range(400):
        world.joined(f"one{number}", regex=f"(foo|{number}).*")
    mark = len(world.driver.log)
    world.advance(9_000)
    assert len(world.driver.log) == mark
    assert world.group.resolved_regexes == {}


def test_expressions_survive_a_restart() -> None:
    world = _world()
    one = _subscribed(world, "one", "foo.*")
    before = dict(world.group.resolved_regexes)
    world.driver.restart()
    assert world.group.resolved_regexes == before
    assert world.group.is_subscribed_to("foo2")
    one.beat()
    assert world.state() == "Stable"


def test_a_group_that_is_gone_has_nothing_looked_up() -> None:
    world = World(FakeTopics(foo1=1))
    one = world.joined("one", regex="foo.*")
    one.leave()
    mark = len(world.driver.log)
    world.advance(SESSION_MS)
    assert "RegularExpression" not in world.written(mark)
