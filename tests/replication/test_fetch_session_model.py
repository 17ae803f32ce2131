"""Random fetchers against the plainest model of what KIP-227 says."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName
from dohle.core.steps import finish
from dohle.protocol.messages.fetch import PartitionData
from dohle.replication.fetch_session_cache import FetchSessionCache
from dohle.replication.fetch_sessions import SessionPartition
from tests.replication.fetches import BY_ID, BY_NAME, data, fetch, topic_id

EVICTION_MS = 100
Name = tuple[str, int]


@dataclass
class Told:
    """A partition, and the high watermark and log start that its fetcher knows."""

    name: Name
    high_watermark: int = -1
    log_start_offset: int = -1


@dataclass
class ModelSession:
    id: int
    privileged: bool
    by_id: bool
    created: int
    used: int
    turn: int
    epoch: int = 1
    #: In reading order.
    partitions: list[Told] = field(default_factory=list)

    def find(self, name: Name) -> Told | None:
        return next((told for told in self.partitions if told.name == name), None)


class Model:
    """Lists that are searched from front to back."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.sessions: list[ModelSession] = []
        self.turn = 0

    def find(self, session_id: int) -> ModelSession | None:
        return next((s for s in self.sessions if s.id == session_id), None)

    def touch(self, session: ModelSession, now: int) -> None:
        self.turn += 1
        session.used, session.turn = now, self.turn

    def make_room(self, privileged: bool, size: int, now: int) -> bool:
        if len(self.sessions) < self.slots:
            return True
        if not self.sessions:
            return False
        victim = min(self.sessions, key=lambda s: s.turn)
        if now - victim.used <= EVICTION_MS:
            candidates = [
                s
                for s in self.sessions
                if s.used - s.created > EVICTION_MS or (privileged and not s.privileged)
            ]
            if not candidates:
                return False
            victim = min(candidates, key=lambda s: (s.privileged, len(s.partitions), s.id))
            if (privileged, size, 0) < (victim.privileged, len(victim.partitions), victim.id):
                return False
        self.sessions.remove(victim)
        return True


names = st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 2))
steps = st.lists(
    st.tuples(
        st.integers(0, 5),  # which fetcher
        st.sampled_from(["next", "next", "next", "next", "full", "final", "repeat", "skip"]),
        st.lists(names, max_size=4, unique=True),  # named
        st.lists(names, max_size=3, unique=True),  # forgotten
        st.dictionaries(names, st.sampled_from(["records", "error", "moved"]), max_size=3),
        st.integers(0, 70),  # time that passes
    ),
    max_size=40,
)


def found_for(name: Name, news: dict[Name, str], moved: dict[Name, int]) -> PartitionData:
    kind = news.get(name)
    if kind == "moved":
        moved[name] = moved.get(name, 10) + 1
    return data(
        name[1],
        high_watermark=moved.get(name, 10),
        records=b"x" if kind == "records" else None,
        error=6 if kind == "error" else 0,
    )


class Run:
    """The cache and the model side by side, with one clock and the same news."""

    def __init__(self, slots: int) -> None:
        self.cache = FetchSessionCache(slots, rng=random.Random(5), eviction_ms=EVICTION_MS)
        self.model = Model(slots)
        self.now = 0
        self.moved: dict[Name, int] = {}
        #: By fetcher: session id and next epoch.
        self.fetchers: dict[int, tuple[int, int]] = {}

    def step(
        self,
        fetcher: int,
        kind: str,
        named: list[Name],
        forgotten: list[Name],
        news: dict[Name, str],
        passed: int,
    ) -> None:
        self.now += passed
        by_id, follower = fetcher % 2 == 0, fetcher if fetcher >= 4 else -1
        session_id, epoch = self.fetchers.get(fetcher, (0, 0))
        epoch = {"full": 0, "final": -1, "repeat": epoch - 1, "skip": epoch + 1}.get(kind, epoch)
        request = fetch(
            *named,
            session_id=session_id,
            epoch=epoch,
            forget=tuple(forgotten),
            follower=follower,
        )
        version = BY_ID if by_id else BY_NAME
        context = self.cache.open_unchanged(request, version, self.now)
        if context is None:
            opening = self.cache.open(
                request, version, lambda uuid: TopicName(uuid[:1].decode()), self.now
            )
            context = finish(opening)
        expected_error, reads, session = self.expect(session_id, epoch, named, forgotten, by_id)
        assert context.error is expected_error
        assert [(part.topic, part.partition) for part in context.partitions] == reads
        if context.error is not ErrorCode.NONE:
            self.fetchers[fetcher] = (0, 0)
            return
        results = []
        for part in context.partitions:
            found = found_for(self.name(part), news, self.moved)
            if (
                found.records
                or found.error_code
                or not context.may_omit(part, found.high_watermark, found.log_start_offset)
            ):
                results.append((part, found))
        told = {self.name(part): found for part, found in results}
        reply = finish(context.finish(results, self.now))
        expected = self.expect_answer(session, reads, told)
        assert [self.name(part) for part, _ in reply.results] == expected
        if session is not None:
            assert reply.session_id == session.id
        elif epoch == 0:
            self.expect_session(reply.session_id, reads, told, by_id, follower >= 0)
        else:
            assert reply.session_id == 0
        self.fetchers[fetcher] = (reply.session_id, epoch + 1 if reply.session_id else 0)
        sessions = self.model.sessions
        assert self.cache.session_count == len(sessions)
        assert self.cache.partition_count == sum(len(s.partitions) for s in sessions)

    @staticmethod
    def name(part: SessionPartition) -> Name:
        assert part.topic is not None
        assert part.topic_id in (topic_id(part.topic), bytes(16))
        return (part.topic, part.partition)

    def expect(
        self, session_id: int, epoch: int, named: list[Name], forgotten: list[Name], by_id: bool
    ) -> tuple[ErrorCode, list[Name], ModelSession | None]:
        """Tell the error, what is to be read in which order, and the session that goes on."""
        session = self.model.find(session_id)
        if epoch in (0, -1):
            if session is not None:
                self.model.sessions.remove(session)
            return ErrorCode.NONE, named, None
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [], None
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH, [], None
        assert session.by_id == by_id
        for name in named:
            if session.find(name) is None:
                session.partitions.append(Told(name))
        session.partitions = [t for t in session.partitions if t.name not in forgotten]
        if not session.partitions:
            self.model.sessions.remove(session)
            return ErrorCode.NONE, named, None
        self.model.touch(session, self.now)
        session.epoch += 1
        return ErrorCode.NONE, [t.name for t in session.partitions], session

    def expect_answer(
        self, session: ModelSession | None, reads: list[Name], told: dict[Name, PartitionData]
    ) -> list[Name]:
        if session is None:
            assert list(told) == reads
            return reads
        answered = []
        for name in reads:
            if name not in told:
                continue
            found, entry = told[name], session.find(name)
            assert entry is not None
            before = replace(entry)
            entry.high_watermark = -1 if found.error_code else found.high_watermark
            entry.log_start_offset = found.log_start_offset
            if found.records:
                session.partitions.remove(entry)
                session.partitions.append(entry)
            if found.records or found.error_code or before != entry:
                answered.append(name)
        return answered

    def expect_session(
        self,
        session_id: int,
        reads: list[Name],
        told: dict[Name, PartitionData],
        by_id: bool,
        privileged: bool,
    ) -> None:
        room = self.model.make_room(privileged, len(reads), self.now)
        assert (session_id != 0) == room
        if room:
            session = ModelSession(session_id, privileged, by_id, self.now, self.now, 0)
            session.partitions = [
                Told(name, told[name].high_watermark, told[name].log_start_offset) for name in reads
            ]
            self.model.touch(session, self.now)
            self.model.sessions.append(session)


@given(slots=st.integers(0, 4), steps=steps)
def test_sessions_do_what_the_model_does(
    slots: int,
    steps: list[tuple[int, str, list[Name], list[Name], dict[Name, str], int]],
) -> None:
    run = Run(slots)
    for step in steps:
        run.step(*step)


def test_the_books_of_evictions_stay_small() -> None:
    run = Run(slots=3)
    for turn in range(3000):
        fetcher = turn % 3
        extra = [("a", 0), ("b", turn % 2)]
        forget = [("b", (turn + 1) % 2)] if turn % 4 else []
        run.step(fetcher, "next", extra, forget, {}, 50)
    assert len(run.cache._for_all) + len(run.cache._for_followers) < 300
