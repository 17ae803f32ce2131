"""A refusal of very many partitions is made in steps: who has no right holds up nobody."""

from __future__ import annotations

from typing import Any, cast

import pytest

from dohle.core.ids import GroupId, TopicName, TransactionalId
from dohle.core.principal import ANONYMOUS
from dohle.core.steps import PlainSteps, finish
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages import (
    add_partitions_to_txn,
    alter_replica_log_dirs,
    delete_records,
    describe_producers,
    list_offsets,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    txn_offset_commit,
    write_txn_markers,
)
from dohle.protocol.messages import produce as produce_messages
from dohle.protocol.schema import Request, Response
from dohle.security.authorizer import Authorizer
from dohle.server.guards.guard import GuardedRequest
from dohle.server.guards.table import BROKER_GUARDS
from dohle.server.rights import Rights

_COUNT = 1000
_NAME = TopicName("secret")
_ALL = tuple(range(_COUNT))
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
    count = 0

    def counted() -> PlainSteps[object]:
        nonlocal count
        while True:
            try:
                next(guard)
            except StopIteration as ended:
                return ended.value
            count += 1
            yield

    assert isinstance(finish(counted()), Response)
    assert count >= _COUNT


class _NoTopics:
    """An image without topics."""

    def topic(self, name: str) -> None:
        """Find nothing."""
