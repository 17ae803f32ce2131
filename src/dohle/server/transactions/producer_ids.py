"""Producer ids for new producers, allocated from the controller in blocks of a thousand."""

from __future__ import annotations

from asyncio import Lock

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, ProducerId
from dohle.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from dohle.server.channel import ControllerChannel, ImageSource


class ProducerIds:
    """The block of ids that this broker hands out; when it is used up, the next is allocated."""

    def __init__(self, images: ImageSource, channel: ControllerChannel, node_id: BrokerId) -> None:
        self._images = images
        self._channel = channel
        self._node_id = node_id
        self._next = 0
        self._end = 0
        self._turn = Lock()

    async def next(self) -> ProducerId:
        """Return an id that no producer has had before."""
        async with self._turn:
            if self._next == self._end:
                await self._allocate()
            self._next += 1
            return ProducerId(self._next - 1)

    async def _allocate(self) -> None:
        registration = self._images.image.brokers.get(self._node_id)
        if registration is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "this broker is not registered yet")
        request = AllocateProducerIdsRequest(
            broker_id=self._node_id, broker_epoch=registration.epoch
        )
        reply = await self._channel.send(request, AllocateProducerIdsResponse)
        if reply.error_code:
            raise KafkaError(ErrorCode(reply.error_code), "no producer ids could be allocated")
        self._next = reply.producer_id_start
        self._end = self._next + reply.producer_id_len
