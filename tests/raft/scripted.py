"""One raft machine, and a script around it: what is sent to it, and what it does."""

from __future__ import annotations

import random
from typing import Any

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, TopicName
from dohle.core.uuid import METADATA_TOPIC_ID, ZERO_UUID
from dohle.protocol.messages import begin_quorum_epoch as begin
from dohle.protocol.messages import end_quorum_epoch as end
from dohle.protocol.messages import fetch, vote
from dohle.protocol.schema import Request, Response
from dohle.raft import effects as do
from dohle.raft import events
from dohle.raft.machine import Raft
from dohle.raft.membership import Membership, Voter, VoterEndpoint
from dohle.raft.replica import State
from dohle.raft.values import ElectionState, OffsetAndEpoch, RaftConfig, ReplicaKey
from tests.raft.simulation.model_log import ModelLog
from tests.raft.simulation.world import LISTENER, directory, endpoint

TOPIC = TopicName("__cluster_metadata")


def key(id: int, generation: int = 0) -> ReplicaKey:
    return ReplicaKey(BrokerId(id), directory(id, generation))


def voter(id: int) -> Voter:
    return Voter(BrokerId(id), directory(id), (endpoint(id),))


def static_voters(*ids: int) -> tuple[Voter, ...]:
    return tuple(Voter(BrokerId(id), ZERO_UUID, (endpoint(id),)) for id in ids)


def members(*ids: int) -> Membership:
    return Membership(1, tuple(map(voter, ids)))


def log_of(*epochs: int, membership: Membership | None = None) -> ModelLog:
    """Return a log with one entry for each epoch given, all on the disk."""
    log = ModelLog(membership)
    for number, epoch in enumerate(epochs):
        log.append(epoch, 1000 * epoch + number)
    log.sync(*log.freeze())
    return log


class Scripted:
    """A machine whose log and disk do at once what it wants."""

    def __init__(
        self,
        id: int = 1,
        voters: tuple[int, ...] = (1, 2, 3),
        *,
        log: ModelLog | None = None,
        state: ElectionState | None = None,
        dynamic: bool = False,
        is_controller: bool = True,
        syncs: bool = True,
        **config: Any,
    ) -> None:
        self.now_ms = 0.0
        self.log = log or log_of(membership=members(*voters) if dynamic else None)
        self.config = RaftConfig(
            key=key(id),
            cluster_id="cluster",
            is_controller=is_controller,
            endpoints=(endpoint(id),) if is_controller else (),
            static_voters=() if dynamic else static_voters(*voters),
            **config,
        )
        self.syncs = syncs
        self.raft = Raft(self.config, self.log, random.Random(1), state, self.now_ms)
        #: Everything it wanted, in order.
        self.done: list[do.Effect] = []
        #: What it sent and was not taken by the script yet.
        self.outbox: list[do.Send] = []
        self.replies: dict[int, Any] = {}
        self._token = 0
        self.step(events.Tick())

    # What it is

    @property
    def state(self) -> State:
        return self.raft.replica.state

    @property
    def is_a(self) -> str:
        """The state's name and epoch."""
        return f"{type(self.state).__name__} {self.state.epoch}"

    @property
    def persisted(self) -> ElectionState:
        return [each.state for each in self.done if isinstance(each, do.Persist)][-1]

    def all_of(self, kind: type[Any]) -> list[Any]:
        return [each for each in self.done if isinstance(each, kind)]

    # What happens to it

    def step(self, event: events.Event) -> None:
        queue: list[events.Event] = [event]
        while queue:
            for effect in self.raft.step(queue.pop(0), self.now_ms):
                self.done.append(effect)
                queue.extend(self._execute(effect))

    def _execute(self, effect: do.Effect) -> list[events.Event]:
        match effect:
            case do.Send():
                self.outbox.append(effect)
            case do.Reply(token, response):
                self.replies[token] = response
            case do.ReplyWithRecords(token, response) | do.ReplyWithSnapshot(token, response):
                self.replies[token] = response
            case do.AppendControlBatch(epoch, records):
                self.log.append(epoch, 0, records)
                return [events.LogChanged()]
            case do.AppendFetched(records, epoch):
                for each in bytes(records):
                    if each <= epoch:
                        self.log.append(each, 0)
                return [events.LogChanged()]
            case do.Truncate(offset):
                self.log.truncate(offset)
                return [events.LogChanged()]
            case do.SyncLog(end_offset, epoch) if self.syncs:
                return [events.Synced(end_offset, epoch)]
        return []

    def wait(self, ms: float) -> None:
        """Let time pass, with a Tick whenever the machine wants one."""
        until = self.now_ms + ms
        while (deadline := self.raft.deadline_ms) is not None and deadline <= until:
            self.now_ms = max(self.now_ms, deadline)
            self.step(events.Tick())
        self.now_ms = until

    def wait_for(self, name: str) -> None:
        """Let time pass until it is in a state."""
        while type(self.state).__name__ != name:
            deadline = self.raft.deadline_ms
            assert deadline is not None
            self.wait(max(deadline - self.now_ms, 0))

    def append(self, count: int = 1) -> None:
        """Append what the leader's state machine wants."""
        for _ in range(count):
            self.log.append(self.state.epoch, 0)
        self.step(events.LogChanged())

    def receive(
        self, request: Request, version: int | None = None, listener: str = LISTENER
    ) -> Any:
        """Pass a request to it; return the response, None if there is none yet."""
        self._token += 1
        version = type(request).VERSIONS.highest if version is None else version
        self.step(events.Received(self._token, request, version, listener))
        return self.replies.get(self._token)

    def take(self, kind: type[Request], to: int | None = None) -> do.Send:
        """Return the newest request of a kind that it has sent."""
        for sent in reversed(self.outbox):
            if isinstance(sent.request, kind) and to in (None, sent.node.id):
                self.outbox.remove(sent)
                return sent
        raise AssertionError(f"no {kind.__name__} to {to} in {self.outbox}")

    def has_sent(self, kind: type[Request]) -> list[int]:
        """Return to whom it has sent requests of a kind that were not taken."""
        return [each.node.id for each in self.outbox if isinstance(each.request, kind)]

    def answer(self, sent: do.Send, response: Response) -> None:
        self.step(events.Answered(sent.correlation_id, response))

    def fail(self, sent: do.Send, error: ErrorCode = ErrorCode.BROKER_NOT_AVAILABLE) -> None:
        self.step(events.Unanswered(sent.correlation_id, error))

    # How it gets where a script begins

    def elect(self) -> None:
        """Make it the leader, by all votes."""
        self.wait_for("Prospective")
        for _ in range(2):
            for id in [each for each in self.raft.voters.ids if each != self.config.key.id]:
                if self.raft.is_leader:
                    break
                self.answer(self.take(vote.VoteRequest, id), vote_answer(self.state.epoch, True))
        assert self.raft.is_leader, self.state
        self.outbox = [
            each for each in self.outbox if not isinstance(each.request, vote.VoteRequest)
        ]

    def follow(self, leader: int = 2, epoch: int = 1) -> do.Send:
        """Make it a follower; return its first fetch."""
        self.outbox.clear()
        response = self.receive(begin_request(leader, epoch, to=self.config.key.id))
        assert response.topics[0].partitions[0].error_code == 0
        return self.take(fetch.FetchRequest, leader)


def vote_request(
    candidate: int,
    epoch: int,
    end: tuple[int, int] = (0, 0),
    *,
    pre_vote: bool = False,
    to: int = -1,
) -> vote.VoteRequest:
    """Return a request for a vote; the end is (offset, epoch)."""
    partition = vote.VoteRequestPartitionData(
        replica_epoch=epoch,
        replica_id=BrokerId(candidate),
        replica_directory_id=directory(max(candidate, 0)),
        last_offset=end[0],
        last_offset_epoch=end[1],
        pre_vote=pre_vote,
    )
    topic = vote.VoteRequestTopicData(topic_name=TOPIC, partitions=(partition,))
    return vote.VoteRequest(cluster_id="cluster", voter_id=BrokerId(to), topics=(topic,))


def vote_answer(
    epoch: int, granted: bool, *, leader: int = -1, error: ErrorCode = ErrorCode.NONE
) -> vote.VoteResponse:
    partition = vote.VoteResponsePartitionData(
        leader_id=BrokerId(leader), leader_epoch=epoch, vote_granted=granted, error_code=error
    )
    topic = vote.VoteResponseTopicData(topic_name=TOPIC, partitions=(partition,))
    return vote.VoteResponse(topics=(topic,))


def begin_request(
    leader: int, epoch: int, *, to: int = -1, directory_id: Any = ZERO_UUID
) -> begin.BeginQuorumEpochRequest:
    partition = begin.BeginQuorumEpochRequestPartitionData(
        leader_id=BrokerId(leader), leader_epoch=epoch, voter_directory_id=directory_id
    )
    topic = begin.BeginQuorumEpochRequestTopicData(topic_name=TOPIC, partitions=(partition,))
    name, host, port = endpoint(leader)
    return begin.BeginQuorumEpochRequest(
        cluster_id="cluster",
        voter_id=BrokerId(to),
        topics=(topic,),
        leader_endpoints=(begin.LeaderEndpoint(name=name, host=host, port=port),),
    )


def end_request(leader: int, epoch: int, *candidates: int) -> end.EndQuorumEpochRequest:
    partition = end.EndQuorumEpochRequestPartitionData(
        leader_id=BrokerId(leader),
        leader_epoch=epoch,
        preferred_candidates=tuple(
            end.ReplicaInfo(candidate_id=BrokerId(id), candidate_directory_id=directory(id))
            for id in candidates
        ),
    )
    topic = end.EndQuorumEpochRequestTopicData(topic_name=TOPIC, partitions=(partition,))
    return end.EndQuorumEpochRequest(cluster_id="cluster", topics=(topic,))


def end_answer(leader: int, epoch: int) -> end.EndQuorumEpochResponse:
    partition = end.EndQuorumEpochResponsePartitionData(
        leader_id=BrokerId(leader), leader_epoch=epoch
    )
    topic = end.EndQuorumEpochResponseTopicData(topic_name=TOPIC, partitions=(partition,))
    return end.EndQuorumEpochResponse(topics=(topic,))


def fetch_request(
    replica: int,
    epoch: int,
    offset: int = 0,
    last_epoch: int = 0,
    *,
    high_watermark: int = 2**63 - 1,
    max_wait_ms: int = 500,
    directory_id: Any = None,
) -> fetch.FetchRequest:
    partition = fetch.FetchPartition(
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        replica_directory_id=directory(replica) if directory_id is None else directory_id,
        high_watermark=high_watermark,
    )
    topic = fetch.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=(partition,))
    return fetch.FetchRequest(
        cluster_id="cluster",
        replica_state=fetch.ReplicaState(replica_id=BrokerId(replica)),
        max_wait_ms=max_wait_ms,
        topics=(topic,),
    )


def fetch_answer(
    epoch: int,
    *,
    leader: int = 2,
    records: bytes = b"",
    high_watermark: int = -1,
    diverging: OffsetAndEpoch | None = None,
    snapshot: OffsetAndEpoch | None = None,
    error: ErrorCode = ErrorCode.NONE,
    endpoints: tuple[VoterEndpoint, ...] = (),
) -> fetch.FetchResponse:
    """Return a leader's answer; records are epochs, one byte each."""
    partition = fetch.PartitionData(
        error_code=error,
        high_watermark=high_watermark,
        records=records,
        current_leader=fetch.LeaderIdAndEpoch(leader_id=BrokerId(leader), leader_epoch=epoch),
    )
    if diverging is not None:
        found = fetch.EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.offset)
        partition = partition.replace(diverging_epoch=found)
    if snapshot is not None:
        id = fetch.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch)
        partition = partition.replace(snapshot_id=id)
    topic = fetch.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=(partition,))
    nodes = tuple(
        fetch.NodeEndpoint(node_id=BrokerId(leader), host=each.host, port=each.port)
        for each in endpoints
    )
    return fetch.FetchResponse(responses=(topic,), node_endpoints=nodes)


def partition_of(response: Any) -> Any:
    """Return the only partition of a response."""
    topics = response.responses if hasattr(response, "responses") else response.topics
    return topics[0].partitions[0]
