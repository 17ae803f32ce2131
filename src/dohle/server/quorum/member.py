"""A node's part in the quorum, whatever its roles: log, image, snapshots and the raft machine.

A voter that is alone has nobody to ask: whatever its log has is committed, and is in its image
before it takes part. Any other node begins with its newest snapshot, and learns from the leader how
far the log is committed (R14).
"""

from __future__ import annotations

import os.path
from asyncio import AbstractEventLoop
from collections.abc import Sequence

from dohle.core.config.static import BrokerConfig
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId
from dohle.core.uuid import uuid_to_text
from dohle.metadata.delta import Delta
from dohle.metadata.features import unsupported_features
from dohle.metadata.image import ClusterImage
from dohle.raft.membership import VoterEndpoint
from dohle.raft.values import ReplicaKey
from dohle.raft.voters import VoterSet, key_of
from dohle.server.host import NodeHost
from dohle.server.net.turns import Turns
from dohle.server.quorum.image_loader import ImageLoader
from dohle.server.quorum.metadata_log import open_metadata_log
from dohle.server.quorum.quorum import QuorumListener
from dohle.server.quorum.raft_log import RaftLog
from dohle.server.quorum.raft_quorum import RaftQuorum
from dohle.server.quorum.settings import raft_config
from dohle.server.quorum.snapshotter import Snapshotter
from dohle.server.quorum.voter_check import refuse_other_voters, what_to_do
from dohle.server.security import controller_security
from dohle.storage.directory.directory import LogDirectory


class QuorumMember:
    """A voter or an observer: ``load()``, then ``start()``, at the end ``stop()``."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        host: NodeHost,
        directory: LogDirectory,
        config: BrokerConfig,
        cluster_id: str,
        *,
        turns: Turns,
        is_new: bool,
    ) -> None:
        """``is_new`` says that nobody has formatted the directory: the node did so itself."""
        self._config = config
        self._files = host.files
        self._cluster_id = cluster_id
        self.key = ReplicaKey(config.node_id, directory.directory_id)
        self.log = RaftLog(host.files, open_metadata_log(directory, config))
        self.images = ImageLoader(turns, host.files, self.log)
        linger_ms = config.get_int("controller.quorum.append.linger.ms")
        self.quorum = RaftQuorum(
            loop,
            host,
            self.log,
            turns=turns,
            linger_ms=linger_ms,
            security=controller_security(config),
        )
        self.snapshotter = Snapshotter(
            loop,
            host.files,
            self.log,
            self.images,
            config,
            host.clock,
            run_in_thread=host.run_in_thread,
            on_log_changed=self.quorum.log_changed,
        )
        self._founds = self._finds_nobody(is_new=is_new)

    def _finds_nobody(self, *, is_new: bool) -> bool:
        """Tell whether the node is to be the only voter although nobody says who votes.

        One that was formatted to join others (``--no-initial-controllers``) waits for them.
        """
        placement = self._config.placement
        if placement.voters or not placement.is_alone or self.log.memberships.latest.kraft_version:
            return False
        return is_new or not placement.bootstrap_servers or self.log.end_offset > 0

    @property
    def is_only_voter(self) -> bool:
        """Whether this node decides alone what is committed, by what its log says now."""
        membership = self.log.memberships.latest
        if membership.kraft_version:
            return VoterSet(membership.voters).is_only(self.key)
        return self._founds or [each.id for each in self._config.placement.voters] == [self.key.id]

    async def load(self) -> None:
        """Load what is surely committed into the image; nothing is written before ``start``."""
        self._ensure_voters_are_known()
        if self.is_only_voter:
            await self.images.load()
        else:
            self._ensure_others_are_named()
            await self.images.load_snapshot()
        _ensure_supported(self.images.image)
        self.images.subscribe(_on_image)

    def _ensure_voters_are_known(self) -> None:
        """Refuse a controller whose static voters are not those of its last run."""
        placement = self._config.placement
        if self.log.memberships.latest.kraft_version or not placement.is_controller:
            return
        voters = [BrokerId(each.id) for each in placement.voters]
        if self._founds:
            voters = [self.key.id]
        if voters:
            refuse_other_voters(self._files, self.log.folder, self.key.id, voters)

    def _ensure_others_are_named(self) -> None:
        """Refuse to wait for controllers that nobody has told the node of."""
        placement = self._config.placement
        if placement.voters or placement.bootstrap_servers:
            return
        keys = [key_of(voter) for voter in self.log.memberships.latest.voters]
        told = ", ".join(map(_named, keys)) or "nobody"
        if self.key in keys:
            folder = os.path.dirname(self.log.folder)
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"the metadata log says that the voters of the quorum are: {told}, but the "
                f"configuration of this one, node {self.key.id}, names no others: "
                f"{what_to_do(self._files, folder, (key.id for key in keys))}, or name the "
                "controllers in controller.quorum.bootstrap.servers",
            )
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"this is {_named(self.key)}, but the metadata log says that the voters of the quorum "
            f"are: {told}. One whose metadata directory was formatted anew is another "
            "voter: start with the directory of that id, as its meta.properties has it; or name "
            "the controllers in controller.quorum.bootstrap.servers",
        )

    async def start(
        self, endpoints: Sequence[VoterEndpoint], listeners: Sequence[QuorumListener]
    ) -> None:
        """Take part in the quorum; others reach this node at these addresses."""
        config = raft_config(
            self._config, self._cluster_id, self.key, endpoints, founds=self._founds
        )
        # The image has a change before anybody else hears of it.
        await self.quorum.start(config, (self.images, *listeners), self.images.image.offset + 1)
        self.images.subscribe(self.snapshotter.on_image)

    async def stop(self) -> None:
        """Leave the quorum in good order, and close the log."""
        await self.quorum.stop()
        await self.snapshotter.stop()
        self.log.log.close()


def _named(key: ReplicaKey) -> str:
    return f"node {key.id} with directory {uuid_to_text(key.directory_id)}"


async def _on_image(image: ClusterImage, delta: Delta) -> None:
    """Go no further than this release understands: another controller may be a newer one."""
    if delta.changed_features:
        _ensure_supported(image)


def _ensure_supported(image: ClusterImage) -> None:
    problems = unsupported_features(image)
    if problems:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "; ".join(problems))
