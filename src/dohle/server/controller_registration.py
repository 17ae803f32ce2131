"""A controller of several says where it is and what it supports (A15, KIP-919).

It does so once for each time that it starts, when the level of the metadata allows it, to whoever
is active then; and again, at longer and longer intervals, until the log has it. Tools that ask any
controller find all of them by that, and features are only raised if all support them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from dohle.core.config.listeners import Listener
from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, Uuid
from dohle.metadata.delta import Delta
from dohle.metadata.features import registration_features
from dohle.metadata.image import ClusterImage
from dohle.metadata.metadata_version import supports_controller_registration
from dohle.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    Feature,
)
from dohle.protocol.messages.controller_registration import Listener as RegisteredListener
from dohle.server.channel import ControllerChannel, ImageSource

logger = logging.getLogger("dohle.server")

_RETRY_S = 0.1
_RETRY_MAX_S = 120.0


class ControllerRegistration:
    """``start()``, then ``stop()``."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        images: ImageSource,
        channel: ControllerChannel,
        node_id: BrokerId,
        incarnation_id: Uuid,
    ) -> None:
        self._loop = loop
        self._images = images
        self._channel = channel
        self._node_id = node_id
        self._incarnation_id = incarnation_id
        self._request = ControllerRegistrationRequest()
        self._sending: asyncio.Task[None] | None = None

    def start(self, listeners: Sequence[Listener]) -> None:
        """Register with these addresses, as soon as that is possible."""
        self._request = ControllerRegistrationRequest(
            controller_id=self._node_id,
            incarnation_id=self._incarnation_id,
            listeners=tuple(
                RegisteredListener(
                    name=one.name, host=one.host, port=one.port, security_protocol=one.protocol
                )
                for one in listeners
            ),
            features=tuple(
                Feature(
                    name=one.name,
                    min_supported_version=one.min_supported_version,
                    max_supported_version=one.max_supported_version,
                )
                for one in registration_features()
            ),
        )
        self._images.subscribe(self._on_image)

    async def _on_image(self, image: ClusterImage, _: Delta) -> None:
        if self._sending is None and self._is_missing(image):
            self._sending = self._loop.create_task(self._register())

    def _is_missing(self, image: ClusterImage) -> bool:
        level = image.metadata_version
        if level is None or not supports_controller_registration(level):
            return False
        known = image.controllers.get(self._node_id)
        return known is None or known.incarnation_id != self._incarnation_id

    async def _register(self) -> None:
        delay_s = _RETRY_S
        while self._is_missing(self._images.image):
            reply = await self._channel.send(self._request, ControllerRegistrationResponse)
            if reply.error_code:
                level = logging.DEBUG if delay_s < 1 else logging.WARNING
                name = ErrorCode(reply.error_code).name
                logger.log(level, "this controller could not be registered: %s", name)
            # Without an error, the image has it in a moment.
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, _RETRY_MAX_S)
        self._sending = None

    def stop(self) -> None:
        """Say nothing more."""
        if self._sending is not None:
            self._sending.cancel()
