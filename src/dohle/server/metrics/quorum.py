"""The metadata log: the controller that writes it, the quorum, and what this node has applied."""

from __future__ import annotations

from collections.abc import Iterator

from dohle.metrics.exposition import family, labels, single
from dohle.metrics.summary import summary
from dohle.raft.leader import Leader
from dohle.raft.machine import Raft
from dohle.raft.states import Candidate, Follower, Prospective, Unattached
from dohle.server.metrics.sources import Sources
from dohle.server.quorum.counts import ControllerCounts

_CONTROLLER = "kafka_controller_kafkacontroller"
_EVENTS = "kafka_controller_controllereventmanager"
_RAFT = "kafka_server_raftmetrics"
_BROKER = "kafka_server_brokermetadatametrics"
#: Kafka's for an id or an offset that is not known.
_UNKNOWN = -1


def collect_quorum(sources: Sources) -> Iterator[str]:
    """Tell how the metadata log is written and read."""
    raft = None if sources.quorum is None else sources.quorum.raft
    if sources.controller is not None:
        yield from _controller(sources.controller.counts)
    if raft is None:
        return
    yield from _raft(raft)
    yield from _applied(sources, raft)


def _controller(counts: ControllerCounts) -> Iterator[str]:
    yield from single(
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        "counter",
        "Leaders elected that were not in sync: committed records may be lost.",
        counts.unclean_elections,
    )
    for name, doc, value in (
        (
            "newactivecontrollerscount",
            "Elections of an active controller that this node has heard of.",
            counts.new_active_controllers,
        ),
        (
            "timedoutbrokerheartbeatcount",
            "Heartbeats of brokers whose turn did not come in time.",
            counts.timed_out_heartbeats,
        ),
    ):
        yield from single(f"{_CONTROLLER}_{name}", "gauge", doc, value)
    columns = counts.commands.columns()
    if columns:
        for name, doc, seconds in (
            ("eventqueuetimems", "How long commands have waited for their turn.", columns[0]),
            (
                "eventqueueprocessingtimems",
                "How long it took to decide and append commands.",
                columns[1],
            ),
        ):
            values = [value * 1000 for value in seconds]
            yield summary(f"{_EVENTS}_{name}", doc, values, counts.command_count)


def _raft(raft: Raft) -> Iterator[str]:
    replica, leader = raft.replica, raft.leader
    voted = replica.state.election.voted if not isinstance(replica.state, Leader) else replica.key
    hw = raft.high_watermark
    for name, doc, value in (
        (
            "current_leader",
            "The node that leads the quorum; -1 if unknown.",
            _UNKNOWN if leader.leader_id is None else leader.leader_id,
        ),
        (
            "current_vote",
            "For whom this node has voted in this epoch; -1 for nobody.",
            _UNKNOWN if voted is None else voted.id,
        ),
        ("current_epoch", "The epoch of the quorum.", leader.epoch),
        (
            "high_watermark",
            "All below is committed; -1 if that is unknown.",
            _UNKNOWN if hw is None else hw,
        ),
        ("log_end_offset", "Where this node's metadata log ends.", replica.log.end_offset),
        ("log_end_epoch", "The epoch of its last record.", replica.log.last_epoch),
        ("number_of_voters", "The voters of the quorum.", len(raft.voters.voters)),
    ):
        yield from single(f"{_RAFT}_{name}", "gauge", doc, value)
    yield from family(
        f"{_RAFT}_current_state",
        "gauge",
        "What this node is in the quorum.",
        [(labels({"current_state": _state(raft)}), 1)],
    )


def _state(raft: Raft) -> str:
    """Return Kafka's name of the state."""
    match raft.replica.state:
        case Leader():
            return "leader"
        case Candidate():
            return "candidate"
        case Prospective() as state:
            return "prospective" if state.voted is None else "prospective-voted"
        case Follower():
            return "follower" if raft.replica.is_voter else "observer"
        case Unattached(voted=voted) if voted is not None:
            return "unattached-voted"
        case _:
            return "unattached"


def _applied(sources: Sources, raft: Raft) -> Iterator[str]:
    images = sources.images
    if images is None:
        return
    hw, timestamp = raft.high_watermark, images.timestamp
    # The leader writes nothing into an idle log that nobody else reads: it lacks nothing.
    lag_ms = 0 if raft.is_leader else max(0, sources.host.clock.now_ms() - timestamp)
    if sources.controller is not None:
        for name, doc, value in (
            (
                "lastcommittedrecordoffset",
                "The last metadata record that is committed, as far as this node knows.",
                _UNKNOWN if hw is None else hw - 1,
            ),
            ("lastappliedrecordtimestamp", "When the last one taken in was written.", timestamp),
            ("lastappliedrecordlagms", "How old that is; 0 where it is written.", lag_ms),
        ):
            yield from single(f"{_CONTROLLER}_{name}", "gauge", doc, value)
    if sources.broker is not None:
        for name, doc, value in (
            ("offset", "The last metadata record taken in.", images.image.offset),
            ("timestamp", "When that was written.", timestamp),
            ("lag_ms", "How old that is; 0 where it is written.", lag_ms),
        ):
            yield from single(f"{_BROKER}_last_applied_record_{name}", "gauge", doc, value)
