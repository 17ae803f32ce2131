"""A refusal of very many partitions is made in steps: who has no right holds up nobody."""

from __future__ import annotations

import itertools
from typing import Any, TypeVar, cast

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import GroupId, TopicName, TransactionalId
from dohle.core.principal import ANONYMOUS
from dohle.core.steps import PlainSteps
from dohle.metadata.decision import ApiError
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages import (
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_replica_log_dirs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_producers,
    elect_leaders,
    incremental_alter_configs,
    list_offsets,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    txn_offset_commit,
    write_txn_markers,
)
from dohle.protocol.messages import alter_partition_reassignments as reassignments
from dohle.protocol.messages import alter_user_scram_credentials as scram
from dohle.protocol.messages import produce as produce_messages
from dohle.protocol.response_errors import error_codes_of
from dohle.protocol.schema import Request, Response
from dohle.security.authorizer import Authorizer
from dohle.server.guards.guard import GuardedRequest
from dohle.server.guards.refusals import refused
from dohle.server.guards.table import BROKER_GUARDS
from dohle.server.quorum.commands import COMMANDS
from dohle.server.rights import Rights

T = TypeVar("T")

_COUNT = 1000
_NAME = TopicName("secret")
_ALL = tuple(range(_COUNT))
#: What the controller decides, of very many things.
_COMMANDS: tuple[Request, ...] = (
    reassignments.AlterPartitionReassignmentsRequest(
        topics=(
            reassignments.ReassignableTopic(
                name=_NAME, partitions=(reassignments.ReassignablePartition(),) * _COUNT
            ),
        )
    ),
    elect_leaders.ElectLeadersRequest(
        topic_partitions=(elect_leaders.TopicPartitions(topic=_NAME, partitions=_ALL),)
    ),
    alter_client_quotas.AlterClientQuotasRequest(
        entries=(alter_client_quotas.AlterClientQuotasRequestEntryData(),) * _COUNT
    ),
    scram.AlterUserScramCredentialsRequest(
        deletions=tuple(scram.ScramCredentialDeletion(name=f"user{number}") for number in _ALL)
    ),
    create_topics.CreateTopicsRequest(topics=(create_topics.CreatableTopic(),) * _COUNT),
    delete_topics.DeleteTopicsRequest(topics=(delete_topics.DeleteTopicState(),) * _COUNT),
    create_partitions.CreatePartitionsRequest(
        topics=(create_partitions.CreatePartitionsTopic(),) * _COUNT
    ),
    alter_configs.AlterConfigsRequest(resources=(alter_configs.AlterConfigsResource(),) * _COUNT),
    incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=(incremental_alter_configs.AlterConfigsResource(),) * _COUNT
    ),
)
_REQUESTS: tuple[tuple[Request, int], ...] = (
    (
        list_offsets.ListOffsetsRequest(
            topics=(
                list_offsets.ListOffsetsTopic(
                    name=_NAME, partitions=(list_offsets.ListOffsetsPartition(),) * _COUNT
                ),
            )
        ),
        7,
    ),
    (
        delete_records.DeleteRecordsRequest(
            topics=(
                delete_records.DeleteRecordsTopic(
                    name=_NAME, partitions=(delete_records.DeleteRecordsPartition(),) * _COUNT
                ),
            )
        ),
        2,
    ),
    (
        describe_producers.DescribeProducersRequest(
            topics=(describe_producers.TopicRequest(name=_NAME, partition_indexes=_ALL),)
        ),
        0,
    ),
    (
        offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            topics=(
                offset_for_leader_epoch.OffsetForLeaderTopic(
                    topic=_NAME,
                    partitions=(offset_for_leader_epoch.OffsetForLeaderPartition(),) * _COUNT,
                ),
            )
        ),
        4,
    ),
    (
        produce_messages.ProduceRequest(
            acks=-1,
            topic_data=(
                produce_messages.TopicProduceData(
                    name=_NAME,
                    partition_data=(produce_messages.PartitionProduceData(),) * _COUNT,
                ),
            ),
        ),
        12,
    ),
    (
        offset_commit.OffsetCommitRequest(
            group_id=GroupId("g"),
            topics=(
                offset_commit.OffsetCommitRequestTopic(
                    name=_NAME,
                    partitions=(offset_commit.OffsetCommitRequestPartition(),) * _COUNT,
                ),
            ),
        ),
        8,
    ),
    (
        txn_offset_commit.TxnOffsetCommitRequest(
            topics=(
                txn_offset_commit.TxnOffsetCommitRequestTopic(
                    name=_NAME,
                    partitions=(txn_offset_commit.TxnOffsetCommitRequestPartition(),) * _COUNT,
                ),
            )
        ),
        3,
    ),
    (
        offset_fetch.OffsetFetchRequest(
            group_id=GroupId("g"),
            topics=(offset_fetch.OffsetFetchRequestTopic(name=_NAME, partition_indexes=_ALL),),
        ),
        1,
    ),
    (
        add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TransactionalId("t"),
            v3_and_below_topics=(
                add_partitions_to_txn.AddPartitionsToTxnTopic(name=_NAME, partitions=_ALL),
            ),
        ),
        3,
    ),
    (
        alter_replica_log_dirs.AlterReplicaLogDirsRequest(
            dirs=(
                alter_replica_log_dirs.AlterReplicaLogDir(
                    path="/x",
                    topics=(
                        alter_replica_log_dirs.AlterReplicaLogDirTopic(name=_NAME, partitions=_ALL),
                    ),
                ),
            )
        ),
        2,
    ),
    (
        write_txn_markers.WriteTxnMarkersRequest(
            markers=(
                write_txn_markers.WritableTxnMarker(
                    topics=(
                        write_txn_markers.WritableTxnMarkerTopic(
                            name=_NAME, partition_indexes=_ALL
                        ),
                    )
                ),
            )
        ),
        1,
    ),
)


@pytest.mark.parametrize(
    ("request_", "version"), _REQUESTS, ids=[type(each).__name__ for each, _ in _REQUESTS]
)
def test_each_partition_is_a_step(request_: Request, version: int) -> None:
    """Security.md, section 8, model: users may cost CPU, but not the others' time."""
    authorizer = Authorizer()
    authorizer.is_loaded = True
    rights = Rights(authorizer, ANONYMOUS, "127.0.0.1", "Test")
    nothing = cast("Any", _NoTopics())
    guard = BROKER_GUARDS[ApiKey(request_.API_KEY)](
        GuardedRequest(request_, version, rights, nothing, nothing)
    )
    response, count = counted(guard)
    assert isinstance(response, Response)
    assert count >= _COUNT


@pytest.mark.parametrize("request_", _COMMANDS, ids=[type(each).__name__ for each in _COMMANDS])
def test_each_part_of_a_command_that_fails_as_a_whole_is_a_step(request_: Request) -> None:
    """Because its sender may not ask for it, or because no controller has answered."""
    error = ApiError(ErrorCode.REQUEST_TIMED_OUT, "no controller")
    failing = COMMANDS[type(request_)].fail(request_, error)
    for steps, code in (
        (refused(request_), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (failing, ErrorCode.REQUEST_TIMED_OUT),
    ):
        response, count = counted(steps)
        assert set(error_codes_of(type(response))(response)) == {code}
        assert count >= _COUNT


def counted(steps: PlainSteps[T]) -> tuple[T, int]:
    """Take all steps, and return the result and how many there were."""
    for count in itertools.count():
        try:
            next(steps)
        except StopIteration as ended:
            return ended.value, count
    raise AssertionError


class _NoTopics:
    """An image without topics."""

    def topic(self, name: str) -> None:
        """Find nothing."""
