"""The controller of a node, and the listeners of controllers."""

from __future__ import annotations

from dohle.metadata.context import ControllerContext
from dohle.raft.membership import VoterEndpoint
from dohle.server.controller_apis import ControllerApis
from dohle.server.net.dispatch import Dispatcher
from dohle.server.quorum.member import QuorumMember
from dohle.server.quorum.server import ControllerServer
from dohle.server.registry import controller_guard, controller_handlers
from dohle.server.shared import Shared


class ControllerRole:
    """``await start()``, then ``await stop()``."""

    def __init__(self, shared: Shared, member: QuorumMember) -> None:
        self._shared = shared
        self._member = member
        config = shared.config
        self._server = ControllerServer(
            shared.loop,
            shared.host,
            shared.metadata_directory,
            member,
            ControllerContext(config, shared.cluster_id, shared.host.rng),
            turns=shared.turns,
            on_fatal=shared.on_fatal,
        )
        self.controller = self._server.controller
        self._apis = ControllerApis(
            config,
            shared.cluster_id,
            shared.host.clock,
            shared.turns,
            member.images,
            self.controller,
            shared.sources.requests,
            lambda: member.quorum.leader.leader_id,
            shared.authorizer,
        )
        #: For what clients ask through the broker of this node.
        self.guard = controller_guard(self._apis)

    async def start(self) -> None:
        """Return when the node takes part in the quorum; if it is alone, when it leads it."""
        shared = self._shared
        listeners = shared.config.controller_listeners
        shared.endpoints.bind(listeners)
        await self._server.start(self._voter_endpoints())
        shared.sources.controller = self.controller
        handlers = controller_handlers(self._member.quorum.take, shared.authorizer)
        dispatcher = Dispatcher(shared.loop, self._apis, handlers)
        shared.endpoints.serve(listeners, dispatcher)

    def _voter_endpoints(self) -> list[VoterEndpoint]:
        placement = self._shared.config.placement
        told = self._shared.endpoints.told(placement.advertised_controller_listeners)
        return [VoterEndpoint(each.name, each.host, each.port) for each in told]

    async def stop(self) -> None:
        """Take no further commands, and close the log; KafkaError if that is not possible."""
        try:
            await self._server.stop()
        finally:
            self.controller.stop()
