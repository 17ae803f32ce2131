"""The topics in which coordinators keep their state: created when first needed, as Kafka does."""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, Future
from typing import Final

from dohle.core.config.static import BrokerConfig
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName
from dohle.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from dohle.server.channel import ControllerChannel, ImageSource

logger = logging.getLogger("dohle.server")

CONSUMER_OFFSETS: Final = TopicName("__consumer_offsets")
TRANSACTION_STATE: Final = TopicName("__transaction_state")
COORDINATOR_TOPICS: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})

_PREFIXES: Final = {
    CONSUMER_OFFSETS: "offsets.topic",
    TRANSACTION_STATE: "transaction.state.log",
}


def internal_topic_configs(config: BrokerConfig, name: TopicName) -> dict[str, str]:
    """Return the configs that one of them is created with."""
    configs = {"compression.type": "producer"}
    if name == TRANSACTION_STATE:
        configs = {
            "compression.type": "uncompressed",
            "unclean.leader.election.enable": "false",
            "min.insync.replicas": str(config.get_int("transaction.state.log.min.isr")),
        }
    configs["cleanup.policy"] = "compact"
    configs["segment.bytes"] = str(config.get_int(f"{_PREFIXES[name]}.segment.bytes"))
    return configs


class InternalTopics:
    """Creates internal topics; requests for a topic that is being created wait for it together."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        config: BrokerConfig,
        images: ImageSource,
        channel: ControllerChannel,
    ) -> None:
        self._loop = loop
        self._config = config
        self._images = images
        self._channel = channel
        self._creating: dict[TopicName, Future[CreateTopicsResponse]] = {}

    def has(self, name: TopicName) -> bool:
        """Tell whether the topic exists, and its coordinators are ready."""
        # The image has it before its partitions are created.
        return self._images.image.topic(name) is not None and name not in self._creating

    async def ensure(self, name: TopicName) -> None:
        """Return when the topic exists; COORDINATOR_NOT_AVAILABLE if it cannot be created."""
        if self.has(name):
            return
        future = self._creating.get(name)
        if future is None:
            request = CreateTopicsRequest(topics=(self._wanted(name),))
            future = self._loop.create_task(self._channel.send(request, CreateTopicsResponse))
            self._creating[name] = future
            future.add_done_callback(lambda _: self._creating.pop(name, None))
        reply = await future
        result = reply.topics[0]
        if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            logger.error(
                "%s cannot be created, so its clients have no coordinator; the next request tries"
                " again: %s",
                name,
                result.error_message,
            )
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"{name} cannot be created: {result.error_message}",
            )

    def _wanted(self, name: TopicName) -> CreatableTopic:
        config, prefix = self._config, _PREFIXES[name]
        configs = internal_topic_configs(config, name)
        return CreatableTopic(
            name=name,
            num_partitions=config.get_int(f"{prefix}.num.partitions"),
            replication_factor=config.get_int(f"{prefix}.replication.factor"),
            configs=tuple(
                CreatableTopicConfig(name=key, value=value) for key, value in configs.items()
            ),
        )
