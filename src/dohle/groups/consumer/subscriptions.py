"""Subscriptions by a regular expression (KIP-848, RE2 syntax): resolves which topics they match.

Topics are not matched in the heartbeat that brings an expression, but right after it, for all
expressions of the group at once; the result is written, and moves the group to a new epoch if it
differs. They are matched again when there are new topics, but not within ten seconds, and at the
latest after ``group.consumer.regex.refresh.interval.ms``.

Whatever the expressions, this takes a quarter of the time at most: one group of all shards gets a
turn of a few milliseconds, and then all pause for three times as long as it took. The groups of a
shard wait for each other, so that only one compiled expression is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Final

from dohle.coordination.effects import Effects
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName
from dohle.groups.consumer.deadlines import PART, REGEX
from dohle.groups.consumer.group import ConsumerGroup
from dohle.groups.consumer.member import ConsumerMember
from dohle.groups.consumer.metadata_hash import TopicHashes
from dohle.groups.consumer.records import group_epoch_record, regex_record, regex_tombstone
from dohle.groups.consumer.resolved_regex import UNRESOLVED, ResolvedRegex
from dohle.groups.context import GroupContext, GroupTimerKey, Topics
from dohle.groups.regex.pattern import Regex, compile_regex
from dohle.protocol.record_framing import CoordinatorRecord

_REFRESH_INTERVAL_MS_MIN: Final = 10_000
#: The length of a turn: others have to be served while topics are matched.
_TURN_MS: Final = 5
_REST_TURNS: Final = 3
#: The steps of a compiled expression until the clock is checked: a millisecond at most.
_STEPS_AT_ONCE: Final = 5_000
#: No batch that a log accepts can hold more names than this.
_FOUND_CHARS_MAX: Final = 16_000_000
#: Tells whether a member may see a topic.
MaySee = Callable[[str], bool]
#: The timer for the shard's turn.
_TURN: Final = GroupTimerKey(PART, REGEX)


class RegexChange(Enum):
    """What a heartbeat means for a member's regular expression."""

    NONE = auto()
    #: It has a new one, whose topics are not known yet.
    UNRESOLVED = auto()
    #: It has another one, or none any more: a new target assignment can be computed at once.
    RESOLVED = auto()


class RegexSubscriptions:
    """Resolves the regular expressions of all groups of a shard."""

    __slots__ = (
        "_context",
        "_hashes",
        "_newest_topics_version",
        "_search",
        "_trying_again",
        "_waiting",
    )

    def __init__(self, context: GroupContext, hashes: TopicHashes) -> None:
        self._context = context
        self._hashes = hashes
        # The image as of which topics were last created.
        self._newest_topics_version = -1
        # The search in progress.
        self._search: _Search | None = None
        # The groups that wait for it to end, in order, with what the member may see whose heartbeat
        # is the reason: its rights count for the group, as in Kafka.
        self._waiting: dict[str, MaySee | None] = {}
        # The same for those that are to try again.
        self._trying_again: dict[str, MaySee | None] = {}

    def on_topics_created(self) -> None:
        """Make all groups match their expressions again, each with its next heartbeat."""
        self._newest_topics_version = self._context.topics.version()

    def update(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        updated: ConsumerMember,
        records: list[CoordinatorRecord],
        may_see: MaySee | None = None,
    ) -> RegexChange:
        """Apply what a heartbeat reported, and have the topics matched if it is time to."""
        change = RegexChange.NONE
        is_new = False
        old, new = member.regex, updated.regex
        if member.subscribed_topic_regex != updated.subscribed_topic_regex:
            change = RegexChange.UNRESOLVED
            if old is not None and group.subscribers_of_regex(old) == 1:
                records.append(regex_tombstone(group.group_id, old))
            if new is None:
                if old is not None:
                    change = RegexChange.RESOLVED
            elif not group.subscribers_of_regex(new):
                check_regex(new)
                is_new = True
            elif new in group.resolved_regexes:
                change = RegexChange.RESOLVED
        if (is_new or group.regexes) and self._is_due(group, member, updated, is_new=is_new):
            self._wait(group.group_id, may_see)
        return change

    def _is_due(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        updated: ConsumerMember,
        *,
        is_new: bool,
    ) -> bool:
        if self._is_awaited(group.group_id):
            return False
        last = next(iter(group.resolved_regexes.values()), None)
        now_ms = self._context.clock.now_ms()
        if last is not None and now_ms <= last.timestamp_ms + _REFRESH_INTERVAL_MS_MIN:
            return False
        regexes = set(group.regexes)
        if member.regex is not None and group.subscribers_of_regex(member.regex) == 1:
            regexes.discard(member.regex)
        if updated.regex is not None:
            regexes.add(updated.regex)
        if not regexes:
            return False
        interval_ms = self._context.settings().group_consumer_regex_refresh_interval_ms
        return (
            is_new
            or last is None
            or len(regexes) != len(group.resolved_regexes)
            or last.version < self._newest_topics_version
            or now_ms > last.timestamp_ms + interval_ms
        )

    def _is_awaited(self, group_id: str) -> bool:
        return (
            group_id in self._waiting
            or (self._search is not None and self._search.group_id == group_id)
            or GroupTimerKey(PART, REGEX, group_id) in self._context.timers
        )

    def _wait(self, group_id: str, may_see: MaySee | None) -> None:
        """Queue a group for having its topics matched."""
        self._waiting[group_id] = may_see
        if _TURN not in self._context.timers:
            self._context.timers.set(_TURN, self._context.clock.monotonic_ms())

    def on_timer(self, key: GroupTimerKey) -> Effects:
        """Let a group retry, or take a turn if no other shard has just had one."""
        if key != _TURN:
            self._wait(key.group_id, self._trying_again.pop(key.group_id, None))
            return Effects()
        clock, turns = self._context.clock, self._context.turns
        began_ms = clock.monotonic_ms()
        if began_ms < turns.rest_until_ms:
            self._context.timers.set(_TURN, turns.rest_until_ms)
            return Effects()
        try:
            return self._take_turn(began_ms + _TURN_MS)
        finally:
            now_ms = clock.monotonic_ms()
            turns.rest_until_ms = now_ms + _REST_TURNS * (now_ms - began_ms)
            if self._search is not None or self._waiting:
                # A little later than other shards, which have waited for this one.
                self._context.timers.set(_TURN, turns.rest_until_ms + 1)

    def _take_turn(self, ends_ms: int) -> Effects:
        clock = self._context.clock
        search, self._search = self._search, None
        group_id = search.group_id if search is not None else next(iter(self._waiting), "")
        may_see = self._waiting.pop(group_id, None)
        group = self._context.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return Effects()
        if search is None:
            search = _Search(group, self._context.topics, clock.now_ms(), may_see)
        for _ in search.steps:
            if clock.monotonic_ms() >= ends_ms:
                self._search = search
                return Effects()
        if search.found_chars > _FOUND_CHARS_MAX:
            return self._try_again(search)
        return self._resolved(group, search)

    def _resolved(self, group: ConsumerGroup, search: _Search) -> Effects:
        effects = Effects(undo=lambda _: self._try_again(search))
        # Some may have been dropped in the meantime.
        found = {
            regex: frozenset(topics)
            for regex, topics in search.found.items()
            if group.subscribers_of_regex(regex)
        }
        differs = False
        for regex, topics in found.items():
            old = group.resolved_regexes.get(regex, UNRESOLVED)
            differs = differs or old.topics != topics
            resolved = ResolvedRegex(topics, search.version, search.began_ms)
            effects.records.append(regex_record(group.group_id, regex, resolved))
        subscribed = group.subscribed_topics(without_regexes=found.keys())
        metadata_hash = self._hashes.of_group(subscribed.union(*found.values()))
        if differs or metadata_hash != group.metadata_hash:
            epoch = group.group_epoch + 1
            effects.records.append(group_epoch_record(group.group_id, epoch, metadata_hash))
        return effects

    def _try_again(self, search: _Search) -> Effects:
        """Retry, but not soon: the result may be larger than can ever be written."""
        deadline_ms = self._context.clock.monotonic_ms() + _REFRESH_INTERVAL_MS_MIN
        self._context.timers.set(GroupTimerKey(PART, REGEX, search.group_id), deadline_ms)
        self._trying_again[search.group_id] = search.may_see
        return Effects()


def check_regex(regex: str) -> Regex:
    """Refuse an invalid regular expression."""
    try:
        return compile_regex(regex)
    except ValueError as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"`{regex}` is not a valid regular expression: {error}.",
        ) from None


class _Search:
    """A search of all topics of one image that may be seen for the expressions of a group."""

    __slots__ = ("began_ms", "found", "found_chars", "group_id", "may_see", "steps", "version")

    def __init__(
        self, group: ConsumerGroup, topics: Topics, now_ms: int, may_see: MaySee | None
    ) -> None:
        self.group_id = group.group_id
        self.may_see = may_see
        self.version = topics.version()
        self.began_ms = now_ms
        self.found: dict[str, list[str]] = {regex: [] for regex in group.regexes}
        self.found_chars = 0
        #: Each step does a limited amount of work.
        self.steps = self._run(list(topics.names()))

    def _run(self, names: list[TopicName]) -> Iterator[None]:
        for pattern, found in self.found.items():
            try:
                regex = compile_regex(pattern)
            except ValueError:
                # Written by another release, and invalid here.
                continue
            yield
            steps_end = regex.steps + _STEPS_AT_ONCE
            for name in names:
                while (matches := regex.matches_within(_STEPS_AT_ONCE, name)) is None:
                    yield
                if matches and (self.may_see is None or self.may_see(name)):
                    found.append(name)
                    self.found_chars += len(name)
                if regex.steps > steps_end:
                    yield
                    steps_end = regex.steps + _STEPS_AT_ONCE
            if self.found_chars > _FOUND_CHARS_MAX:
                return
