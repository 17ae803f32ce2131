"""Producer ids for new producers, allocated from the controller in blocks of a thousand (H5).

The next block is asked for when a tenth of this one is left: producers go on while there is no
controller. Without any id left a producer waits for the controller's answer, but not for long: it
is told to try again, and the answer is for whoever comes next.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from dohle.client.errors import answered_error
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, ProducerId
from dohle.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from dohle.server.channel import ControllerChannel, ImageSource

logger = logging.getLogger("dohle.server")

#: The next block is asked for when no more than this part of the present one is left.
_LEFT_PART = 10
WAIT_S = 5.0


class _Block(NamedTuple):
    start: int
    end: int


class ProducerIds:
    """The block of ids that this broker hands out, and the one behind it."""

    def __init__(self, images: ImageSource, channel: ControllerChannel, node_id: BrokerId) -> None:
        self._images = images
        self._channel = channel
        self._node_id = node_id
        self._block = _Block(0, 0)
        self._next = 0
        #: The block behind this one, or why there is none.
        self._following: asyncio.Task[_Block | KafkaError] | None = None
        self._turn = asyncio.Lock()

    async def next(self) -> ProducerId:
        """Return an id that no producer has had before."""
        async with self._turn:
            if self._next == self._block.end:
                self._block = await self._following_block()
                self._next = self._block.start
            self._next += 1
            start, end = self._block
            if end - self._next <= (end - start) // _LEFT_PART:
                self._ask_ahead()
            return ProducerId(self._next - 1)

    def close(self) -> None:
        """Wait for no answer any more."""
        if self._following is not None:
            self._following.cancel()

    def _ask_ahead(self) -> asyncio.Task[_Block | KafkaError]:
        """Ask for the next block, unless it is here or was asked for already."""
        known = self._following
        if known is None or (known.done() and isinstance(known.result(), KafkaError)):
            known = asyncio.get_running_loop().create_task(self._allocate())
            self._following = known
        return known

    async def _following_block(self) -> _Block:
        asked = self._ask_ahead()
        await asyncio.wait([asked], timeout=WAIT_S)
        if not asked.done():
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, "the controller has not allocated producer ids yet"
            )
        self._following = None
        block = asked.result()
        if isinstance(block, KafkaError):
            raise block
        return block

    async def _allocate(self) -> _Block | KafkaError:
        """Ask the controller; whatever happens, somebody else may ask again."""
        try:
            return await self._ask()
        except KafkaError as error:
            return error
        except Exception as error:
            logger.exception("no producer ids could be allocated. Please report this.")
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))

    async def _ask(self) -> _Block | KafkaError:
        registration = self._images.image.brokers.get(self._node_id)
        if registration is None:
            return KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "this broker is not registered yet")
        request = AllocateProducerIdsRequest(
            broker_id=self._node_id, broker_epoch=registration.epoch
        )
        reply = await self._channel.send(request, AllocateProducerIdsResponse)
        if reply.error_code:
            return answered_error(reply.error_code, "no producer ids could be allocated")
        start = reply.producer_id_start
        if start < self._block.end:
            # Other producers may have these ids already.
            return KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"the controller allocated producer ids from {start} on, which is not above those"
                f" before: they ended at {self._block.end}",
            )
        return _Block(start, start + reply.producer_id_len)
