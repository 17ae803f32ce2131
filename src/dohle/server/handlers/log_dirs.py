"""AlterReplicaLogDirs (34), v1-2, and DescribeLogDirs (35), v1-4.

AlterReplicaLogDirs begins to move replicas to another directory of this broker, and answers when
the moves have begun: see ``replica_moves``. Per partition: 57 if the path is not in ``log.dirs``,
56 if the directory or the replica is offline, 3 or 9 if there is no such replica here; the
directory is then remembered, and used when the replica is created. A replica that is already in the
directory stays, and a move of it to another one is cancelled.

DescribeLogDirs:

- One result for each entry of ``log.dirs``, with the partitions in it that were asked for; null
  asks for all. A directory that is offline: 56, and nothing about its partitions.
- The size of a partition is that of its segments, without indexes. A future replica is listed too,
  with its lag behind the log that it will replace.
- v4: the total and the usable bytes of the volume.
- If a tag of our own asks for it, how far compacted logs are cleaned: see ``protocol.extensions``.
"""

from __future__ import annotations

import logging
import os.path
from collections import defaultdict
from typing import TYPE_CHECKING

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName, TopicPartition
from dohle.core.steps import PlainSteps, mapped, mapped_steps
from dohle.protocol.apis import ApiKey
from dohle.protocol.extensions import CLEANING_TAG, CleaningDescription, extension
from dohle.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from dohle.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from dohle.server.net.handler import Handler, serves
from dohle.server.net.slices import Slices
from dohle.storage.cleaning.cleaner import LogCleaner
from dohle.storage.directory.directory import LogDirectory
from dohle.storage.log import Log

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer
    from dohle.server.net.handler import RequestContext

logger = logging.getLogger("dohle.server")


def handle_describe_log_dirs(
    broker: BrokerServer, context: RequestContext, request: DescribeLogDirsRequest
) -> PlainSteps[DescribeLogDirsResponse]:
    """Describe what is in the log directories."""
    asked: set[TopicPartition] | None = None
    if request.topics is not None:
        asked = set()
        for topic in request.topics:
            for index in topic.partitions:
                asked.add(TopicPartition(topic.topic, index))
                yield
            yield
    online = {one.path: one for one in broker.logs.online_directories}
    cleaner = broker.cleaner if extension(request, CLEANING_TAG) is not None else None
    results = yield from mapped_steps(
        lambda path: _result(broker, path, online.get(path), asked, cleaner),
        dict.fromkeys(broker.config.log_dirs),
    )
    return DescribeLogDirsResponse(results=results)


def _result(
    broker: BrokerServer,
    path: str,
    directory: LogDirectory | None,
    asked: set[TopicPartition] | None,
    cleaner: LogCleaner | None,
) -> PlainSteps[DescribeLogDirsResult]:
    shown = os.path.abspath(path)
    if directory is None:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=shown)
    try:
        with directory.disk.guarding("looking for free space"):
            total, usable = directory.context.fs.free_bytes(path)
    except KafkaError as error:
        logger.warning("%s cannot be described: %s", shown, error)
        return DescribeLogDirsResult(error_code=error.code, log_dir=shown)
    return DescribeLogDirsResult(
        log_dir=shown,
        topics=(yield from _topics(broker, directory, asked, cleaner)),
        total_bytes=total,
        usable_bytes=usable,
    )


def _topics(
    broker: BrokerServer,
    directory: LogDirectory,
    asked: set[TopicPartition] | None,
    cleaner: LogCleaner | None,
) -> PlainSteps[tuple[DescribeLogDirsTopic, ...]]:
    found: defaultdict[TopicName, list[DescribeLogDirsPartition]] = defaultdict(list)
    for key, log in tuple(directory.logs.items()):
        yield
        if asked is None or key in asked:
            described = DescribeLogDirsPartition(
                partition_index=key.partition,
                partition_size=log.size,
                offset_lag=max(0, log.high_watermark - log.log_end_offset),
                unknown_tags=() if cleaner is None else (yield from _cleaning(cleaner, log)),
            )
            found[key.topic].append(described)
    for move in tuple(broker.moves.future_replicas(directory)):
        yield
        key = move.log.partition
        if asked is None or key in asked:
            described = DescribeLogDirsPartition(
                partition_index=key.partition,
                partition_size=move.size,
                offset_lag=move.log.log_end_offset - move.log_end_offset,
                is_future_key=True,
            )
            found[key.topic].append(described)
    return (
        yield from mapped(
            lambda item: DescribeLogDirsTopic(name=item[0], partitions=tuple(item[1])),
            found.items(),
        )
    )


def _cleaning(cleaner: LogCleaner, log: Log) -> PlainSteps[tuple[tuple[int, bytes], ...]]:
    """Return the tagged field of a partition, if it is compacted."""
    state = yield from cleaner.describe(log)
    if state is None:
        return ()
    description = CleaningDescription(
        dirty_ratio=state.dirty_ratio,
        last_cleaned_ms=-1 if state.last_cleaned_ms is None else state.last_cleaned_ms,
        uncleanable_reason=state.uncleanable,
    )
    return ((CLEANING_TAG, description.encode(0)),)


async def handle_alter_replica_log_dirs(
    broker: BrokerServer, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Begin to move replicas to other directories."""
    slices = Slices(broker.turns)
    wanted = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                wanted[TopicPartition(topic.name, index)] = directory.path
                await slices.give_way()
            await slices.give_way()
        await slices.give_way()
    results: defaultdict[TopicName, list[AlterReplicaLogDirPartitionResult]] = defaultdict(list)
    for key, path in wanted.items():
        # Each makes a folder.
        await slices.give_way()
        code = ErrorCode.NONE
        try:
            broker.moves.alter(key, path)
        except KafkaError as error:
            logger.warning("%s cannot be moved to %s: %s", key, path, error)
            code = error.code
        results[key.topic].append(
            AlterReplicaLogDirPartitionResult(partition_index=key.partition, error_code=code)
        )
    return AlterReplicaLogDirsResponse(
        results=tuple(
            AlterReplicaLogDirTopicResult(topic_name=topic, partitions=tuple(partitions))
            for topic, partitions in results.items()
        )
    )


HANDLERS: tuple[tuple[ApiKey, Handler], ...] = (
    serves(ApiKey.ALTER_REPLICA_LOG_DIRS, handle_alter_replica_log_dirs),
    serves(ApiKey.DESCRIBE_LOG_DIRS, handle_describe_log_dirs),
)
