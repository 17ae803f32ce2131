"""Moving replicas between the directories of this node, and telling the controller where they are.

A move (``dohle.storage.moves.move``) copies in threads, piece by piece; all moves together are
limited by ``replica.alter.log.dirs.io.max.bytes.per.second``. When the future replica has caught
up, the new directory is written to the metadata log; then the replica catches up once more and
replaces the current log within one step of the loop. If a move ends before that, the change of the
metadata is taken back. A stop leaves the future replica, and the next start begins its move anew,
as it does after a crash.
"""

from __future__ import annotations

import asyncio
import logging
import os.path
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.host import Host
from dohle.core.ids import BrokerId, TopicPartition, Uuid
from dohle.core.uuid import ZERO_UUID, is_reserved
from dohle.metadata.metadata_version import supports_directories
from dohle.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
    AssignReplicasToDirsResponse,
)
from dohle.server.channel import ControllerChannel, ImageSource
from dohle.server.partitions.partitions import Partitions
from dohle.storage.directory.directory import LogDirectory
from dohle.storage.directory.manager import LogManager
from dohle.storage.directory.partition_dirs import NAME_LENGTH_MAX, future_dir_name
from dohle.storage.flush import FlushJob
from dohle.storage.moves.copy import CopyFailed
from dohle.storage.moves.move import ReplicaMove

logger = logging.getLogger("dohle.server")

T = TypeVar("T")

#: The config that limits the rate of moves.
MOVE_BYTES_PER_SECOND = "replica.alter.log.dirs.io.max.bytes.per.second"

_JOB_BYTES_MAX = 4 << 20
_JOB_BYTES_MIN = 64 << 10
_ASSIGNMENTS_PER_REQUEST_MAX = 2_000
#: How long it waits before it tells the controller once more.
_BACKOFF_S, _BACKOFF_S_MAX = 0.1, 10.0
#: How often the rate is read again.
_PACE_S = 1.0


class _Place(NamedTuple):
    topic_id: Uuid
    directory_id: Uuid


_Places = Mapping[TopicPartition, _Place]


@dataclass(slots=True)
class _Running:
    move: ReplicaMove
    topic_id: Uuid
    #: Whether the controller has been asked to assign the replica to its target directory.
    is_assigned: bool = False
    task: asyncio.Task[None] | None = None


class ReplicaMoves:
    """The moves of one node. Everything but the copying happens on the loop."""

    def __init__(
        self,
        logs: LogManager,
        partitions: Partitions,
        images: ImageSource,
        channel: ControllerChannel,
        node_id: BrokerId,
        host: Host,
        *,
        bytes_per_second: Callable[[], int],
    ) -> None:
        self._logs = logs
        self._partitions = partitions
        self._images = images
        self._channel = channel
        self._node_id = node_id
        self._bytes_per_second = bytes_per_second
        self._running: dict[TopicPartition, _Running] = {}
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._jobs: set[asyncio.Future[Any]] = set()
        # One thread for each directory, as in Kafka. Only moves use them, so that no other work on
        # the disks, such as the metadata log's, waits for a move.
        at_once = max(1, len(logs.directories))
        self._turns = asyncio.Semaphore(at_once)
        self._threads = host.thread_pool(at_once, "replica-move")
        # How many moves are copying now.
        self._copying = 0
        self._is_stopping = False

    def future_replicas(self, directory: LogDirectory) -> list[ReplicaMove]:
        """Return the moves to a directory."""
        moves = (running.move for running in self._running.values())
        return [move for move in moves if move.target is directory]

    # Asking for moves

    def alter(self, key: TopicPartition, path: str) -> None:
        """Begin to move a replica to a directory; raise KafkaError if that is not possible.

        A move of the replica to another directory is cancelled. If there is no such replica yet, it
        will be created in this directory, and the error is REPLICA_NOT_AVAILABLE or
        UNKNOWN_TOPIC_OR_PARTITION.
        """
        if len(future_dir_name(key, ZERO_UUID)) > NAME_LENGTH_MAX:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic's name is too long")
        target = self._directory(path)
        running = self._running.get(key)
        if running is not None and running.move.target is not target:
            self._cancel(key)
        partition = self._partitions.get(*key)
        if partition is None:
            self._logs.prefer(key, target.path)
            raise self._refusal(key)
        partition.log.disk.ensure_online()
        source = self._logs.directory_of(key)
        if source is target or source is None or key in self._running:
            return
        self._ensure_possible()
        move = ReplicaMove(partition.log, source, target, partition.topic_id)
        self._start(key, _Running(move, partition.topic_id))

    def _directory(self, path: str) -> LogDirectory:
        known = {os.path.abspath(d.path): d for d in self._logs.directories}
        directory = known.get(path)
        offline = {os.path.abspath(each) for each in self._logs.offline_directories}
        if path in offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {path} is offline")
        if directory is None:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not in log.dirs")
        return directory

    def _refusal(self, key: TopicPartition) -> KafkaError:
        image = self._images.image.partition(*key)
        if image is None:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {key}")
        if self._node_id in image.replicas and key not in self._partitions.being_made:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{key} could not be opened")
        return KafkaError(
            ErrorCode.REPLICA_NOT_AVAILABLE, f"{key} has no replica on this broker yet"
        )

    def _ensure_possible(self) -> None:
        if self._is_stopping:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "this node is stopping")
        if self._logs.offline_directories:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, "a future replica may be in an offline directory"
            )
        if not self._knows_directories:
            level = self._images.image.metadata_version
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"metadata.version {level} cannot record the directories of replicas",
            )

    def forget(self, keys: Iterable[TopicPartition]) -> None:
        """End the moves of partitions that are deleted."""
        for key in keys:
            running = self._running.get(key)
            if running is not None:
                running.is_assigned = False
                self._cancel(key)

    # Start and stop

    def resume(self) -> None:
        """Begin the moves anew that the last stop or crash interrupted."""
        interrupted, self._logs.places.interrupted = self._logs.places.interrupted, []
        for key, target in interrupted:
            try:
                self.alter(key, os.path.abspath(target.path))
            except KafkaError as error:
                logger.warning(
                    "the interrupted move of %s to %s cannot be resumed: %s. Ask for it again if"
                    " it is still wanted.",
                    key,
                    target.path,
                    error,
                )
        self.assign(partition.key for partition in self._partitions)

    async def stop(self) -> None:
        """Stop all moves; what was copied stays for the next start."""
        self._is_stopping = True
        for task in self._tasks:
            task.cancel()
        for waited in (self._tasks, self._jobs):
            if waited:
                await asyncio.wait(waited)
        self._running.clear()
        self._threads.close()

    # Moving

    def _start(self, key: TopicPartition, running: _Running) -> None:
        logger.info("%s is being moved to %s", key, running.move.target.path)
        self._running[key] = running
        running.task = self._spawn(self._run(key, running))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    async def _run(self, key: TopicPartition, running: _Running) -> None:
        move = running.move
        try:
            async with self._turn():
                await self._catch_up(move)
                running.is_assigned = True
                await self._assign(key, _Place(running.topic_id, move.target.directory_id))
                await self._catch_up(move)
                # No await since it caught up: nothing can have been appended.
                names = move.finish()
                del self._running[key]
                await self._sync(move, names)
        except KafkaError as error:
            logger.error(
                "the move of %s to %s failed: %s. The replica stays where it is; ask for the move"
                " again once the cause is mended.",
                key,
                move.target.path,
                error,
            )
            self._give_up(key, running)
        except Exception:
            logger.exception(
                "the move of %s to %s failed: the replica stays where it is. Please report this.",
                key,
                move.target.path,
            )
            self._give_up(key, running)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        async with self._turns:
            self._copying += 1
            try:
                yield
            finally:
                self._copying -= 1

    async def _catch_up(self, move: ReplicaMove) -> None:
        while True:
            rate = self._bytes_per_second()
            job = move.next_job(max(_JOB_BYTES_MIN, min(_JOB_BYTES_MAX, rate)))
            if job is None:
                return
            try:
                missing = await self._in_thread(job.run)
            except CopyFailed as failure:
                raise move.failed(failure) from failure
            move.complete(job, missing)
            await self._keep_pace(job.size)

    async def _keep_pace(self, size: float) -> None:
        """Wait so long that copying this many bytes keeps to the rate, which all moves share."""
        while (seconds := size * self._copying / self._bytes_per_second()) > _PACE_S:
            size -= size * _PACE_S / seconds
            await asyncio.sleep(_PACE_S)
        await asyncio.sleep(seconds)

    async def _sync(self, move: ReplicaMove, names: FlushJob) -> None:
        try:
            await self._in_thread(names.run)
        except OSError as error:
            raise move.target.disk.failed(f"moving {move.log.partition}", error) from error

    async def _in_thread(self, work: Callable[[], T]) -> T:
        future = self._threads.run(work)
        self._jobs.add(future)
        future.add_done_callback(self._landed)
        # A thread cannot be interrupted: ``stop`` waits for it.
        return await asyncio.shield(future)

    def _landed(self, future: asyncio.Future[Any]) -> None:
        self._jobs.discard(future)
        if not future.cancelled() and (error := future.exception()) is not None:
            logger.debug("copying a replica ended with an error: %s", error)

    def _give_up(self, key: TopicPartition, running: _Running) -> None:
        if self._running.get(key) is running and not self._is_stopping:
            self._cancel(key)

    def _cancel(self, key: TopicPartition) -> None:
        running = self._running.pop(key)
        if running.task is not None:
            running.task.cancel()
        logger.info("the move of %s to %s is cancelled", key, running.move.target.path)
        running.move.cancel()
        if running.is_assigned:
            self.assign([key], in_doubt=True)

    # Telling the controller

    def assign(self, keys: Iterable[TopicPartition], *, in_doubt: bool = False) -> None:
        """Tell the controller the directories of these replicas, where the image has others.

        With ``in_doubt`` it is told in any case, because a request with another directory may still
        be on its way.
        """
        if not self._knows_directories or self._is_stopping:
            return
        untold = [key for key in keys if in_doubt or self.is_untold(key)]
        if untold:
            self._spawn(self._assign_all(untold, in_doubt=in_doubt))

    @property
    def _knows_directories(self) -> bool:
        level = self._images.image.metadata_version
        return level is not None and supports_directories(level)

    def _place(self, key: TopicPartition) -> _Place | None:
        """Return where a replica is; None if it is gone, or its move tells the controller."""
        partition, directory = self._partitions.get(*key), self._logs.directory_of(key)
        running = self._running.get(key)
        if partition is None or directory is None:
            return None
        if running is not None and running.is_assigned:
            return None
        return _Place(partition.topic_id, directory.directory_id)

    def is_untold(self, key: TopicPartition) -> bool:
        """Tell whether the image has another directory for a replica than it is in."""
        place, told = self._place(key), self._images.image.partition(*key)
        # The image may be ahead of what has been done about it: then the replica is about to go.
        if place is None or told is None or self._node_id not in told.replicas:
            return False
        return told.directory_of(self._node_id) != place.directory_id

    async def _assign_all(self, keys: Sequence[TopicPartition], *, in_doubt: bool) -> None:
        """Tell the controller in several requests, each again and again until it is heard (D3)."""
        for start in range(0, len(keys), _ASSIGNMENTS_PER_REQUEST_MAX):
            several, backoff_s = keys[start : start + _ASSIGNMENTS_PER_REQUEST_MAX], _BACKOFF_S
            while self._knows_directories:
                # As of the time the request is sent: a move that ends later sends its own.
                wanted = (key for key in several if in_doubt or self.is_untold(key))
                places = {key: place for key in wanted if (place := self._place(key)) is not None}
                # Errors of single replicas do not matter: those replicas are gone.
                code = (await self._tell(places)).error_code if places else ErrorCode.NONE
                if not code:
                    break
                logger.warning(
                    "the controller could not be told the directories of %d replicas: %s; trying"
                    " again",
                    len(places),
                    ErrorCode(code).name,
                )
                await asyncio.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, _BACKOFF_S_MAX)

    async def _assign(self, key: TopicPartition, place: _Place) -> None:
        reply = await self._tell({key: place})
        codes = [reply.error_code]
        for directory in reply.directories:
            for topic in directory.topics:
                codes += [partition.error_code for partition in topic.partitions]
        if failed := [code for code in codes if code]:
            raise KafkaError(ErrorCode(failed[0]), "the controller did not assign the directory")

    async def _tell(self, places: _Places) -> AssignReplicasToDirsResponse:
        """Tell the controller the directories of replicas."""
        broker = self._images.image.broker(self._node_id)
        request = AssignReplicasToDirsRequest(
            broker_id=self._node_id,
            broker_epoch=-1 if broker is None else broker.epoch,
            directories=_directories(places),
        )
        return await self._channel.send(request, AssignReplicasToDirsResponse)


def _directories(places: _Places) -> tuple[AssignReplicasToDirsRequestDirectoryData, ...]:
    assert not any(is_reserved(place.directory_id) for place in places.values())
    return tuple(
        AssignReplicasToDirsRequestDirectoryData(
            id=directory_id,
            topics=tuple(
                AssignReplicasToDirsRequestTopicData(
                    topic_id=place.topic_id,
                    partitions=(
                        AssignReplicasToDirsRequestPartitionData(partition_index=key.partition),
                    ),
                )
                for key, place in places.items()
                if place.directory_id == directory_id
            ),
        )
        for directory_id in dict.fromkeys(place.directory_id for place in places.values())
    )
