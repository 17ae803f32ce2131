"""Asking the controller for other ISRs: one AlterPartition at a time (G12).

It has all that is wanted by then. What an answer means for a partition is decided in
``replication.partition`` (G13).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, Uuid
from dohle.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    BrokerState,
)
from dohle.replication.partition import WantedIsr
from dohle.server.channel import ControllerChannel
from dohle.server.partitions.commits import Commits
from dohle.server.partitions.partitions import Partition

logger = logging.getLogger("dohle.server")

_RETRY_S = 0.05


class IsrChanges:
    """The changes of ISRs that a broker wants."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        channel: ControllerChannel,
        commits: Commits,
        node_id: BrokerId,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._loop = loop
        self._channel = channel
        self._commits = commits
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._wanted: dict[Partition, WantedIsr] = {}
        self._task: asyncio.Task[None] | None = None

    def ask(self, partition: Partition, wanted: WantedIsr) -> None:
        """Ask for an ISR as soon as the controller has answered what it was asked before."""
        self._wanted[partition] = wanted
        if self._task is None:
            self._task = self._loop.create_task(self._run())

    async def stop(self) -> None:
        """Ask for nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while self._wanted:
            asked, self._wanted = self._wanted, {}
            try:
                response = await self._channel.send(self._request(asked), AlterPartitionResponse)
                if self._take(asked, response):
                    continue
            except Exception:
                logger.exception("an ISR could not be asked for; trying again. Please report this.")
            for partition, wanted in asked.items():
                self._ask_again(partition, wanted)
            await asyncio.sleep(_RETRY_S)
        self._task = None

    def _ask_again(self, partition: Partition, wanted: WantedIsr) -> None:
        if partition.replication.wanted_isr is wanted and not partition.is_gone:
            self._wanted.setdefault(partition, wanted)

    def _request(self, asked: dict[Partition, WantedIsr]) -> AlterPartitionRequest:
        topics: dict[Uuid, list[AlterPartitionRequestPartitionData]] = {}
        broker_epoch = self._broker_epoch()
        for partition, wanted in asked.items():
            topics.setdefault(partition.topic_id, []).append(
                AlterPartitionRequestPartitionData(
                    partition_index=partition.key.partition,
                    leader_epoch=wanted.leader_epoch,
                    new_isr_with_epochs=tuple(
                        BrokerState(
                            broker_id=broker,
                            broker_epoch=broker_epoch if broker == self._node_id else epoch,
                        )
                        for broker, epoch in wanted.isr
                    ),
                    partition_epoch=wanted.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._node_id,
            broker_epoch=broker_epoch,
            topics=tuple(
                AlterPartitionRequestTopicData(topic_id=topic_id, partitions=tuple(partitions))
                for topic_id, partitions in topics.items()
            ),
        )

    def _take(self, asked: dict[Partition, WantedIsr], response: AlterPartitionResponse) -> bool:
        """Take in an answer; False if it is none."""
        if response.error_code:
            # It is asked again; what lasts is told by whoever watches controllers.
            logger.debug("the controller answers %s about ISRs", _error(response.error_code).name)
            return False
        answers = {
            (topic.topic_id, answer.partition_index): answer
            for topic in response.topics
            for answer in topic.partitions
        }
        for partition, wanted in asked.items():
            # Metadata that came meanwhile overrides an answer.
            if partition.replication.wanted_isr is not wanted:
                continue
            answer = answers.get((partition.topic_id, partition.key.partition))
            if answer is None:
                self._ask_again(partition, wanted)
            else:
                self._answered(partition, answer)
        return True

    def _answered(self, partition: Partition, answer: AlterPartitionResponsePartitionData) -> None:
        error = _error(answer.error_code)
        if error:
            logger.debug("%s: the controller answers %s about its ISR", partition.key, error.name)
        else:
            logger.info("%s: the ISR is now %s", partition.key, list(answer.isr))
        self._commits.isr_answered(
            partition,
            error,
            leader_epoch=answer.leader_epoch,
            partition_epoch=answer.partition_epoch,
            isr=tuple(answer.isr),
        )


def _error(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
