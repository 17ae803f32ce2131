"""What a node tells its raft machine at the start: who it is, and where the quorum is."""

from __future__ import annotations

from collections.abc import Sequence

from dohle.core.config.static import BrokerConfig
from dohle.core.ids import BrokerId
from dohle.core.uuid import ZERO_UUID
from dohle.raft.membership import Voter, VoterEndpoint
from dohle.raft.values import RaftConfig, ReplicaKey

#: The listener of controllers where the configuration names none: a node that is alone.
_DEFAULT_LISTENER = "CONTROLLER"


def default_listener(config: BrokerConfig) -> str:
    """Return the name of the listener by which nodes reach controllers (R4)."""
    names = config.placement.controller_listener_names
    return names[0] if names else _DEFAULT_LISTENER


def raft_config(
    config: BrokerConfig,
    cluster_id: str,
    key: ReplicaKey,
    endpoints: Sequence[VoterEndpoint],
    *,
    founds: bool,
) -> RaftConfig:
    """Return what the machine is told.

    A node that ``founds`` a cluster of its own is the only voter, unless the log says otherwise.
    """
    placement = config.placement
    listener = default_listener(config)
    voters = tuple(
        Voter(BrokerId(voter.id), ZERO_UUID, (VoterEndpoint(listener, voter.host, voter.port),))
        for voter in placement.voters
    )
    if founds:
        voters = (Voter(key.id, ZERO_UUID, tuple(endpoints)),)
    return RaftConfig(
        key=key,
        cluster_id=cluster_id,
        is_controller=placement.is_controller,
        default_listener=listener,
        endpoints=tuple(endpoints),
        static_voters=voters,
        bootstrap_servers=placement.bootstrap_servers,
        election_timeout_ms=config.get_int("controller.quorum.election.timeout.ms"),
        fetch_timeout_ms=config.get_int("controller.quorum.fetch.timeout.ms"),
        election_backoff_max_ms=config.get_int("controller.quorum.election.backoff.max.ms"),
        request_timeout_ms=config.get_int("controller.quorum.request.timeout.ms"),
        retry_backoff_ms=config.get_int("controller.quorum.retry.backoff.ms"),
        auto_join=config.get_bool("controller.quorum.auto.join.enable"),
    )
