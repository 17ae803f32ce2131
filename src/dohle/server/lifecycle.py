"""The life of this broker as the controller sees it: it registers, is unfenced, and shuts down.

Each step is a request, even if the controller is in the same process. A broker is fenced from its
registration until its heartbeats show that its image includes the registration, and that it wants
to be unfenced. To shut down, it says so in its heartbeats until the controller has moved its
leaderships to other brokers, and these know it.
"""

from __future__ import annotations

import logging
from asyncio import sleep
from collections.abc import Sequence

from dohle.core.config.listeners import Listener
from dohle.core.config.static import BrokerConfig
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import Uuid
from dohle.metadata.features import registration_features
from dohle.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from dohle.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from dohle.protocol.messages.broker_registration import (
    Listener as RegisteredListener,
)
from dohle.server.channel import ControllerChannel, ImageSource

logger = logging.getLogger("dohle.server")

_UNREGISTERED = -1
#: The pause between heartbeats of a broker that waits for the controller, and how many it sends.
_RETRY_S = 0.05
_HEARTBEATS_MAX = 1_200


class BrokerLifecycle:
    """Tells the controller about the state of this broker."""

    def __init__(
        self,
        config: BrokerConfig,
        cluster_id: str,
        incarnation_id: Uuid,
        images: ImageSource,
        channel: ControllerChannel,
    ) -> None:
        self._config = config
        self._cluster_id = cluster_id
        self._incarnation_id = incarnation_id
        self._images = images
        self._channel = channel
        #: The offset of this registration in the metadata log.
        self.broker_epoch = _UNREGISTERED

    async def register(
        self, listeners: Sequence[Listener], log_dirs: Sequence[Uuid], previous_epoch: int
    ) -> None:
        """Register this broker with the addresses for its clients; it is fenced from then on.

        ``previous_epoch`` is the broker epoch before the restart if the broker is known to have
        stopped cleanly, else -1.
        """
        request = BrokerRegistrationRequest(
            broker_id=self._config.node_id,
            cluster_id=self._cluster_id,
            incarnation_id=self._incarnation_id,
            listeners=tuple(
                RegisteredListener(
                    name=listener.name,
                    host=listener.host,
                    port=listener.port,
                    security_protocol=listener.protocol,
                )
                for listener in listeners
            ),
            features=registration_features(),
            rack=self._config.rack,
            log_dirs=tuple(sorted(log_dirs)),
            previous_broker_epoch=previous_epoch,
        )
        reply = await self._channel.send(request, BrokerRegistrationResponse)
        if reply.error_code:
            raise _refused(reply.error_code, "be registered")
        self.broker_epoch = reply.broker_epoch

    async def unfence(self) -> None:
        """Return when the controller has unfenced this broker."""
        for _ in range(_HEARTBEATS_MAX):
            reply = await self._heartbeat()
            if reply.error_code:
                raise _refused(reply.error_code, "be unfenced")
            if not reply.is_fenced:
                return
            await sleep(_RETRY_S)
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "this broker was not unfenced in time")

    async def shut_down(self) -> None:
        """Return when no other node relies on this broker any more, or after waiting in vain."""
        if self.broker_epoch == _UNREGISTERED:
            return
        for attempt in range(_HEARTBEATS_MAX):
            reply = await self._heartbeat(want_shut_down=True)
            if reply.error_code:
                logger.error(
                    "the controller could not be told that this broker stops: %s. Until the broker"
                    " starts again, the controller may take it for alive.",
                    ErrorCode(reply.error_code).name,
                )
                return
            if reply.should_shut_down:
                return
            if attempt:
                await sleep(_RETRY_S)
        logger.error(
            "the controller did not approve the shutdown of this broker in time: it stops all the"
            " same"
        )

    async def _heartbeat(self, *, want_shut_down: bool = False) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=self._config.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._images.image.offset,
            want_shut_down=want_shut_down,
        )
        return await self._channel.send(request, BrokerHeartbeatResponse)


def _refused(code: int, what: str) -> KafkaError:
    return KafkaError(
        ErrorCode(code),
        f"this broker cannot {what}: the controller answered {ErrorCode(code).name}",
    )
