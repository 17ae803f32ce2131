"""Any commands, commits and changes of leaders: what was answered is in the log, and no more."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName
from dohle.protocol.messages.create_topics import CreateTopicsResponse
from dohle.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from dohle.protocol.messages.records.cluster_metadata import RemoveTopicRecord, TopicRecord
from tests.server.quorum.scripted import OTHER, OWN, Scene, play, settle

NAMES = st.sampled_from("abc")


@dataclass(frozen=True)
class Create:
    name: str


@dataclass(frozen=True)
class Delete:
    name: str


@dataclass(frozen=True)
class Commit:
    count: int
    together: bool


@dataclass(frozen=True)
class Lose:
    #: How much of what was appended the next leader has.
    kept: int


@dataclass(frozen=True)
class Win:
    pass


@dataclass(frozen=True)
class Control:
    """The quorum appends something of its own."""


Step = Create | Delete | Commit | Lose | Win | Control

STEPS = st.lists(
    st.one_of(
        NAMES.map(Create),
        NAMES.map(Create),
        NAMES.map(Delete),
        st.builds(Commit, st.integers(1, 3), st.booleans()),
        st.builds(Lose, st.integers(0, 3)),
        st.just(Win()),
        st.just(Control()),
    ),
    max_size=25,
)


class Run:
    """One run, with everything that was asked for."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.created: list[asyncio.Task[CreateTopicsResponse]] = []
        self.deleted: list[asyncio.Task[DeleteTopicsResponse]] = []

    async def take(self, step: Step) -> None:
        scene, quorum = self.scene, self.scene.quorum
        leads = quorum.leader.leader_id == OWN
        match step:
            case Create(name):
                self.created.append(scene.create(name))
            case Delete(name):
                topic = DeleteTopicState(name=TopicName(name))
                request = DeleteTopicsRequest(topics=(topic,), timeout_ms=60_000)
                self.deleted.append(scene.begin(request, DeleteTopicsResponse))
            case Commit(count, together):
                await quorum.commit(count, together=together)
            case Lose(kept) if leads:
                await quorum.elect(OTHER, kept=kept)
            case Win() if not leads:
                await quorum.commit()
                await quorum.elect(OWN)
            case Control() if leads:
                quorum.write_control()
        await settle()

    async def end(self) -> None:
        await self.scene.quorum.commit()
        await settle()
        records = [record for batch in self.scene.quorum.committed for record in batch.records]
        made = {record.topic_id for record in records if isinstance(record, TopicRecord)}
        gone = {record.topic_id for record in records if isinstance(record, RemoveTopicRecord)}
        for created in self.created:
            (one,) = created.result().topics
            if one.error_code == 0:
                assert one.topic_id in made
            else:
                allowed = (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NOT_CONTROLLER)
                assert one.error_code in allowed
        for deleted in self.deleted:
            (topic,) = deleted.result().responses
            if topic.error_code == 0:
                assert topic.topic_id in gone
            else:
                unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                assert topic.error_code in (unknown, ErrorCode.NOT_CONTROLLER)
        assert len(made - gone) == len(self.scene.images.image.topics)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_what_is_answered_is_committed_and_the_rest_is_not_controller(steps: list[Step]) -> None:
    """A3, A4: the image is the replay of what is committed; every answer is true of it."""

    async def scenario(scene: Scene) -> None:
        await scene.lead()
        await scene.start_broker(1)
        run = Run(scene)
        for step in steps:
            await run.take(step)
        await run.end()

    play(scenario, {"metadata.max.idle.interval.ms": "0"})
