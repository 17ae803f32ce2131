"""Consumer groups: subscriptions by a regular expression."""

from __future__ import annotations

from typing import Any

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.seams import ManualClock
from dohle.protocol.messages.records.consumer_group import ConsumerGroupRegularExpressionValue
from tests.groups.consumer_world import NO_DISK, SESSION_MS, Consumer, FakeTopics, World


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
    world.advance(500)
    one.beat()
    assert one.owned == {("foo1", 0), ("foo2", 0)}


class BusyClock(ManualClock):
    """Every look at it takes time, once it is switched on."""

    look_ms = 0

    def monotonic_ms(self) -> int:
        self.advance(self.look_ms)
        return super().monotonic_ms()


def test_many_topics_are_looked_up_piece_by_piece() -> None:
    clock = BusyClock()
    world = World(FakeTopics(**{f"foo{number}": 1 for number in range(1_200)}), clock)
    one = world.joined("one", regex="foo[0-9]*1")
    clock.look_ms = 6
    steps = 0
    while not world.group.resolved_regexes:
        effects = world.machine.expire()
        assert effects is not None
        world.driver.carry_out(effects)
        steps += 1
    clock.look_ms = 0
    assert steps > 2
    one.beat()
    assert len(one.owned) == 120


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
