"""What the roles of a node share: one loop, one machine, one set of directories and addresses."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from dataclasses import dataclass
from os.path import abspath

from dohle.core.config.static import BrokerConfig
from dohle.security.authorizer import Authorizer
from dohle.server.endpoints import Endpoints
from dohle.server.host import NodeHost
from dohle.server.metrics.sources import Sources
from dohle.server.net.turns import Turns
from dohle.storage.directory.directory import LogDirectory
from dohle.storage.directory.manager import LogManager


@dataclass(frozen=True, slots=True)
class Shared:
    """The surroundings of a broker and a controller in one process."""

    loop: AbstractEventLoop
    config: BrokerConfig
    cluster_id: str
    host: NodeHost
    turns: Turns
    logs: LogManager
    endpoints: Endpoints
    #: What the metrics tell of.
    sources: Sources
    #: Called with the reason if the node cannot go on.
    on_fatal: Callable[[str], None]
    #: Who decides what clients may do; None: they may do everything.
    authorizer: Authorizer | None = None

    @property
    def metadata_directory(self) -> LogDirectory:
        """The directory of the metadata log."""
        directory = self.logs.metadata_directory
        assert directory is not None, "it was attached"
        return directory


def metadata_path(config: BrokerConfig) -> str:
    """Return the metadata log's directory, as ``log.dirs`` spells it if it is one of them."""
    wanted = config.metadata_log_dir
    same = (path for path in config.log_dirs if abspath(path) == abspath(wanted))
    return next(same, wanted)


def data_paths(config: BrokerConfig) -> tuple[str, ...]:
    """Return the directories that hold records: a controller alone has none but its metadata."""
    return config.log_dirs if config.placement.is_broker else (metadata_path(config),)
