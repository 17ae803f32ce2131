"""What collectors look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dohle.metadata.broker_life import BrokerState
from dohle.metrics.requests import AllRequests
from dohle.metrics.samples import Samples
from dohle.server.broker import BrokerServer
from dohle.server.host import NodeHost, ProcessUsage
from dohle.server.metrics.loop_probe import LoopProbe
from dohle.server.net.listener import ListeningSocket
from dohle.server.quorum.controller import Controller
from dohle.server.quorum.image_loader import ImageLoader
from dohle.server.quorum.raft_quorum import RaftQuorum
from dohle.storage.backup import CapturedLog
from dohle.storage.cleaning.cleaner import LogCleaner


@dataclass(slots=True)
class Sources:
    """A node, as far as it has started."""

    host: NodeHost
    node_id: int
    cluster_id: str
    probe: LoopProbe
    #: Whether there are series of single partitions.
    per_partition: bool = True
    #: The log directories.
    paths: Sequence[str] = ()
    state: BrokerState = BrokerState.STARTING
    broker: BrokerServer | None = None
    controller: Controller | None = None
    #: As this node takes part in it, or follows it.
    quorum: RaftQuorum | None = None
    #: The cluster as this node knows it.
    images: ImageLoader | None = None
    #: What is asked of it, as a broker and as a controller.
    requests: AllRequests = field(default_factory=AllRequests)
    cleaner: LogCleaner | None = None
    #: Tells in one go how far all logs have come: for backups.
    capture: Callable[[], list[CapturedLog]] | None = None
    listeners: Sequence[ListeningSocket] = ()
    #: Seconds, and a weight of one, of each flush.
    flushes: Samples = field(default_factory=Samples)
    flush_count: int = 0
    #: How long loading the logs at start took.
    load_seconds: float | None = None
    #: As of this scrape.
    usage: ProcessUsage | None = None
    #: Free and all bytes of each log directory's disk, as of this scrape.
    disks: dict[str, tuple[int, int]] = field(default_factory=dict)

    def flushed(self, seconds: float) -> None:
        """Take note of a flush."""
        self.flush_count += 1
        self.flushes.add(seconds, 1.0)
