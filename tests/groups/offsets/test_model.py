"""Random commits, transactions, deletions, expiry and crashes against a model that is plain to see.

The model keeps the whole history as a list and works out each answer from it. What must hold: an
offset is the last one committed, by the order of the log, unless it was deleted since; so it never
goes back without a commit. A crash (everything but the log is lost) changes nothing, even if the
cleaner has been at the log before.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dohle.core.errors import ErrorCode
from dohle.groups.settings import GroupSettings
from tests.groups.offsets.offset_driver import OffsetDriver, producer

MINUTE_MS = 60_000
RETENTION_MS = 60 * MINUTE_MS
CHECK_MS = 10 * MINUTE_MS

GROUPS = ["g", "h"]
KEYS = [("t", 0), ("t", 1), ("u", 0)]
PRODUCERS = [1, 2, 3]

groups = st.sampled_from(GROUPS)
keys = st.sampled_from(KEYS)
producers = st.sampled_from(PRODUCERS)
commits = st.dictionaries(keys, st.integers(0, 2**63 - 1), min_size=1)


@dataclass
class Written:
    """An offset in the model's history."""

    group: str
    key: tuple[str, int]
    offset: int
    at_ms: int
    by: int | None
    #: Not if it is pending, or was aborted.
    counts: bool
    is_pending: bool
    is_deleted: bool = False


class OffsetsModel(RuleBasedStateMachine):
    """Simple groups: who may commit is tested elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = OffsetDriver(
            GroupSettings(
                offsets_retention_minutes=60, offsets_retention_check_interval_ms=CHECK_MS
            )
        )
        self.history: list[Written] = []
        self.next_check_ms = self.driver.clock.monotonic_ms() + CHECK_MS

    def now_ms(self) -> int:
        return self.driver.clock.now_ms()

    def live(self, group: str, key: tuple[str, int]) -> Written | None:
        """Return the offset that counts: the last that was written."""
        found = [
            written
            for written in self.history
            if (written.group, written.key) == (group, key)
            and written.counts
            and not written.is_deleted
        ]
        return found[-1] if found else None

    def pending(self, group: str, key: tuple[str, int]) -> bool:
        return any(
            written.is_pending and not written.is_deleted
            for written in self.history
            if (written.group, written.key) == (group, key)
        )

    def forget(self, group: str, key: tuple[str, int]) -> None:
        for written in self.history:
            if (written.group, written.key) == (group, key):
                written.is_deleted = True

    @rule(group=groups, offsets=commits)
    def commit(self, group: str, offsets: dict[tuple[str, int], int]) -> None:
        answer = self.driver.commit(group, offsets)
        assert set(answer.values()) == {ErrorCode.NONE}
        for key, offset in offsets.items():
            self.history.append(
                Written(group, key, offset, self.now_ms(), None, counts=True, is_pending=False)
            )

    @rule(group=groups, offsets=commits, by=producers)
    def commit_in_transaction(
        self, group: str, offsets: dict[tuple[str, int], int], by: int
    ) -> None:
        answer = self.driver.commit_in_transaction(producer(by), group, offsets)
        assert set(answer.values()) == {ErrorCode.NONE}
        for key, offset in offsets.items():
            self.history.append(
                Written(group, key, offset, self.now_ms(), by, counts=False, is_pending=True)
            )

    @rule(by=producers, is_commit=st.booleans())
    def end_transaction(self, by: int, is_commit: bool) -> None:
        self.driver.end_transaction(producer(by), is_commit=is_commit)
        for written in self.history:
            if written.is_pending and written.by == by:
                written.is_pending = False
                written.counts = is_commit

    @rule(group=groups, key=keys)
    def delete(self, group: str, key: tuple[str, int]) -> None:
        if group in self.driver.group_ids:
            assert self.driver.delete(group, [key]) == {key: ErrorCode.NONE}
            self.forget(group, key)

    @rule(topic=st.sampled_from(["t", "u"]))
    def delete_topic(self, topic: str) -> None:
        self.driver.delete_topics({topic})
        self.driver.advance(0)
        for group in GROUPS:
            for key in KEYS:
                if key[0] == topic:
                    self.forget(group, key)

    @rule(minutes=st.integers(1, 90))
    def pass_time(self, minutes: int) -> None:
        until_ms = self.now_ms() + minutes * MINUTE_MS
        while self.next_check_ms <= until_ms:
            for group in GROUPS:
                for key in KEYS:
                    written = self.live(group, key)
                    if (
                        written is not None
                        and self.next_check_ms - written.at_ms >= RETENTION_MS
                        and not self.pending(group, key)
                    ):
                        self.forget(group, key)
            self.next_check_ms += CHECK_MS
        self.driver.advance(minutes * MINUTE_MS)

    @rule()
    def crash(self) -> None:
        self.driver.assert_restart_changes_nothing()
        self.next_check_ms = self.now_ms() + CHECK_MS

    @rule()
    def compact_and_crash(self) -> None:
        """Lose what the cleaner would take away too: of what is decided, all but the last."""
        log = self.driver.log
        outcomes: dict[int, bool] = {}  # by producer, of the transaction that ends next
        counts = [True] * len(log)
        first_open = len(log)
        for at in reversed(range(len(log))):
            record, by, is_commit = log[at]
            if record is None:
                assert by is not None
                outcomes[by.id] = is_commit
            elif by is not None:
                counts[at] = outcomes.get(by.id, False)
                if by.id not in outcomes:
                    first_open = at
        last = {
            stored.record.key: at
            for at, stored in enumerate(log[:first_open])
            if stored.record is not None and counts[at]
        }
        self.driver.log = [
            stored
            for at, stored in enumerate(log)
            if at >= first_open or stored.record is None or last.get(stored.record.key) == at
        ]
        self.driver.restart()
        self.next_check_ms = self.now_ms() + CHECK_MS

    @invariant()
    def the_last_commit_counts(self) -> None:
        for group in GROUPS:
            expected = {}
            for key in KEYS:
                written = self.live(group, key)
                if written is not None:
                    expected[key] = written.offset
            assert self.driver.offsets(group) == expected

    @invariant()
    def what_is_pending_is_unstable(self) -> None:
        for group in GROUPS:
            for topic, partition in KEYS:
                [found] = self.driver.fetch(group, {topic: [partition]}, require_stable=True)
                [(_, _, code)] = found.partitions
                is_unstable = code is ErrorCode.UNSTABLE_OFFSET_COMMIT
                assert is_unstable == self.pending(group, (topic, partition))

    @invariant()
    def a_group_is_there_as_long_as_it_has_offsets(self) -> None:
        for group in GROUPS:
            if any(self.live(group, key) or self.pending(group, key) for key in KEYS):
                assert group in self.driver.group_ids


TestOffsetsModel = OffsetsModel.TestCase
TestOffsetsModel.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
