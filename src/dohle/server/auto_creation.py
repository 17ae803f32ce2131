"""Topics that are created because somebody asked for their metadata.

As in Kafka, whoever asks is answered at once that there is no such topic, and asks again: creating
it goes on behind. Topics of the coordinators get the settings that these need.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop
from collections.abc import Iterable
from typing import Final

from dohle.core.config.static import BrokerConfig
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName
from dohle.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from dohle.server.channel import ControllerChannel
from dohle.server.internal_topics import COORDINATOR_TOPICS, InternalTopics

logger = logging.getLogger("dohle.server")

#: Beyond this many, whoever asks for a topic has to ask again before its creation begins.
_CREATING_MAX: Final = 10_000
_EXPECTED: Final = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS})


class AutoCreation:
    """Creates topics in the background, each only once at a time."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        config: BrokerConfig,
        internal_topics: InternalTopics,
        channel: ControllerChannel,
    ) -> None:
        self._loop = loop
        self._timeout_ms = config.get_int("request.timeout.ms")
        self._internal_topics = internal_topics
        self._channel = channel
        self._creating: set[TopicName] = set()

    def begin(self, names: Iterable[TopicName]) -> None:
        """Begin to create the topics that are not being created yet."""
        new = []
        for name in names:
            if len(self._creating) >= _CREATING_MAX:
                break
            if name not in self._creating:
                self._creating.add(name)
                new.append(name)
        if new:
            task = self._loop.create_task(self._create(new))
            task.add_done_callback(lambda _: self._creating.difference_update(new))

    async def _create(self, names: list[TopicName]) -> None:
        try:
            for name in names:
                if name in COORDINATOR_TOPICS:
                    await self._internal_topics.ensure(name)
            topics = tuple(
                CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
                for name in names
                if name not in COORDINATOR_TOPICS
            )
            if topics:
                request = CreateTopicsRequest(topics=topics, timeout_ms=self._timeout_ms)
                reply = await self._channel.send(request, CreateTopicsResponse)
                failed = [each for each in reply.topics if each.error_code not in _EXPECTED]
                for each in failed[:1]:
                    _warn(len(failed), f"{each.name}: {each.error_message}")
        except KafkaError as error:
            _warn(len(names), str(error))


def _warn(count: int, reason: str) -> None:
    logger.warning("%d topics that clients asked for could not be created: %s", count, reason)
