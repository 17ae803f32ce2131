"""What the handlers on the controller's listeners work with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from dohle.core.config.static import BrokerConfig
from dohle.core.ids import BrokerId
from dohle.core.seams import Clock
from dohle.metadata.image import ClusterImage
from dohle.metrics.requests import AllRequests
from dohle.protocol.schema import Request, VersionRange
from dohle.security.authorizer import Authorizer
from dohle.server.channel import DecidingController, ImageSource, R
from dohle.server.frontend import client_of, muting
from dohle.server.net.handler import RequestContext
from dohle.server.net.turns import Turns


class ControllerApis:
    """The controller of this node, as its listeners see it; it may be active or not."""

    is_controller = True
    #: Brokers hold clients to their quotas.
    metering = None

    def __init__(
        self,
        config: BrokerConfig,
        cluster_id: str,
        clock: Clock,
        turns: Turns,
        images: ImageSource,
        controller: DecidingController,
        requests: AllRequests,
        find_leader_id: Callable[[], BrokerId | None] = lambda: None,
        authorizer: Authorizer | None = None,
    ) -> None:
        """``find_leader_id`` tells who leads the quorum, as far as this node knows."""
        self.config = config
        self.node_id = config.node_id
        self.cluster_id = cluster_id
        self.clock = clock
        self.turns = turns
        self.images = images
        self.controller = controller
        self.requests = requests
        self.find_leader_id = find_leader_id
        self.authorizer = authorizer
        #: Nothing is appended on behalf of clients but by the controller itself.
        self.unwritten: tuple[()] = ()

    @property
    def image(self) -> ClusterImage:
        """The cluster as of the last committed record that this controller has read."""
        return self.images.image

    def ask_controller(
        self, context: RequestContext, request: Request, answer: type[R]
    ) -> Awaitable[R]:
        """Have the controller of this node decide; NOT_CONTROLLER if it is not the active one."""
        sent = self.controller.send(request, answer, context.version, client=client_of(context))
        return muting(context, sent)

    def controller_range(self, api_key: int) -> VersionRange | None:
        """Return None: this node is the controller, and forwards nothing."""
        return None

    def check_listeners(self, texts: Mapping[str, str]) -> None:
        """Accept all: the broker whose listeners they are has checked them."""

    def write_appends(self) -> None:
        """Do nothing."""
