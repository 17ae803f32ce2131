"""Replies to Fetch and FetchSnapshot, with the bytes that the raft machine never sees."""

from __future__ import annotations

from functools import partial

from dohle.core.errors import ErrorCode
from dohle.core.host import Host
from dohle.protocol.messages.fetch import FetchResponse
from dohle.protocol.messages.fetch_snapshot import FetchSnapshotResponse
from dohle.protocol.schema import Records, Response
from dohle.raft.effects import ReplyWithRecords, ReplyWithSnapshot
from dohle.server.quorum.raft_log import RaftLog, whole_batches
from dohle.server.quorum.snapshots import SnapshotId

#: More is read in a thread.
_SMALL_BYTES = 64 * 1024


async def with_records(host: Host, log: RaftLog, reply: ReplyWithRecords) -> Response:
    """Put in whole batches from an offset on; none if there are none (R50)."""
    response = reply.response
    assert isinstance(response, FetchResponse)
    piece = log.slice(reply.offset, reply.max_bytes)
    records: Records = b""
    if piece is not None:
        read = partial(whole_batches, piece, reply.max_bytes)
        records = read() if piece.size <= _SMALL_BYTES else await host.run_in_thread(read)
    (topic,) = response.responses
    (partition,) = topic.partitions
    topic = topic.replace(partitions=(partition.replace(records=records),))
    return response.replace(responses=(topic,))


async def with_snapshot(host: Host, log: RaftLog, reply: ReplyWithSnapshot) -> Response:
    """Put in a chunk of a snapshot; SNAPSHOT_NOT_FOUND if it is gone (R56)."""
    response = reply.response
    assert isinstance(response, FetchSnapshotResponse)
    snapshot = SnapshotId(*reply.snapshot_id)
    (topic,) = response.topics
    (partition,) = topic.partitions
    read = partial(log.store.read, snapshot, reply.position, reply.max_bytes)
    try:
        partition = partition.replace(unaligned_records=await host.run_in_thread(read))
    except FileNotFoundError:
        partition = partition.replace(error_code=ErrorCode.SNAPSHOT_NOT_FOUND)
    return response.replace(topics=(topic.replace(partitions=(partition,)),))
