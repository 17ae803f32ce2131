"""The common offset commit, recognised by its bytes.

A consumer commits the same partitions again and again: except for the correlation id, the offsets
and the leader epochs, every byte equals that of the previous request. So the request need not be
decoded field by field, nor its records and answer encoded. What can have changed meanwhile (the
topics, the coordinator, the group and its members) is checked every time, and if any of it has
changed, the request takes the slow path.

Preparing the shortcut takes longer than a commit on the slow path, so it is not done before a
second commit of the same size arrives.

Its appends are written together with those of the produce requests around it: nothing that a commit
checks depends on what is written.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from dohle.core.errors import ErrorCode, KafkaError
from dohle.groups.offsets.repeated_commit import RepeatedCommit, with_numbers
from dohle.metadata.image import ClusterImage, TopicImage
from dohle.protocol.codec.pattern import find_pattern
from dohle.protocol.framing import encode_response
from dohle.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from dohle.server.coordinators.offset_commit_answers import commit_answer, commit_refused
from dohle.server.coordinators.shard import Shard
from dohle.server.net.outcome import Frame, LateFrame, PendingFrame
from dohle.server.net.shortcut import Served

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer

# From the first version with leader epochs on. No version from there on has a retention time.
_VERSIONS = range(6, 11)
_FIRST_WITH_TOPIC_IDS = 10
# Where the api key and version end, and where the correlation id does.
_HEAD_END, _PREFIX_START = 4, 8
# An offset and a leader epoch, which stand together.
_NUMBERS = {12: "qi"}
# Where these pairs are among the fields of a request: a constant stands between any two of them.
_CONSTANTS, _OFFSETS, _LEADER_EPOCHS = slice(2, None, 3), slice(3, None, 3), slice(4, None, 3)
# Larger commits (of ten thousand partitions and more) are not remembered.
_FRAME_BYTES_MAX = 512 * 1024

#: Head and correlation id, then a constant, an offset and a leader epoch in turn.
Fields = tuple[Any, ...]


def learn_commit(broker: BrokerServer, served: Served) -> CommitShortcut | None:
    """Remember a commit, if it may be a common one."""
    if served.version not in _VERSIONS or len(served.frame) > _FRAME_BYTES_MAX:
        return None
    return CommitShortcut(broker, served)


class CommitShortcut:
    """The last commit of a connection, without what changes from one commit to the next."""

    joins: ClassVar[bool] = True
    __slots__ = (
        "_body_offset",
        "_broker",
        "_common",
        "_is_prepared",
        "_learnt_from",
        "served",
    )

    def __init__(self, broker: BrokerServer, served: Served) -> None:
        self._broker = broker
        self._learnt_from = bytes(served.frame)
        self._body_offset = served.body_offset
        self._is_prepared = False
        self.served = 0
        self._common: _CommonCommit | None = None

    def fits(self, frame: memoryview) -> Fields | None:
        """Return the fields of a commit that differs from the last one only in its numbers."""
        if len(frame) != len(self._learnt_from):
            return None
        if not self._is_prepared:
            self._is_prepared = True
            image = self._broker.image
            self._common = _common_commit(image, self._learnt_from, self._body_offset)
        return None if self._common is None else self._common.fits(frame)

    def handle(self, broker: BrokerServer, fields: Fields) -> LateFrame | None:
        """Commit, if nothing else has changed since the previous commit."""
        assert self._common is not None, "it fits"
        return self._common.handle(broker, fields)


class _CommonCommit:
    """A commit that can be recognised by its bytes, with what is needed to carry it out."""

    __slots__ = (
        "_answer",
        "_answer_size",
        "_coordinator_index",
        "_image",
        "_pattern",
        "_repeated",
        "_topics",
        "_unpack",
        "_version",
        "size",
    )

    def __init__(
        self,
        frame: bytes,
        body_offset: int,
        request: OffsetCommitRequest,
        topics: tuple[TopicImage, ...],
    ) -> None:
        """Prepare for requests like this one, in which every topic has its name."""
        version = int.from_bytes(frame[2:_HEAD_END], "big")
        self._version = version
        self._topics = topics
        # The image in which the topics were last checked, and the group's coordinator in it.
        self._image: ClusterImage | None = None
        self._coordinator_index: int | None = None
        zeros, ones = with_numbers(request, 0), with_numbers(request, -1)
        self._repeated = RepeatedCommit(zeros, ones)
        prefix = frame[_PREFIX_START:body_offset]
        pattern = find_pattern(
            prefix + zeros.encode(version), prefix + ones.encode(version), _NUMBERS
        )
        fields = struct.Struct(f">{_HEAD_END}si{pattern.format}")
        self._unpack, self.size = fields.unpack, fields.size
        self._pattern = (frame[:_HEAD_END], pattern.constants)
        answer = b"".join(encode_response(commit_answer(request, ErrorCode.NONE), version, 0))
        self._answer_size, self._answer = answer[:4], answer[8:]

    def fits(self, frame: memoryview) -> Fields | None:
        """Return the fields of a request of the same size, if its constants are the same."""
        fields = self._unpack(frame)
        return fields if (fields[0], fields[_CONSTANTS]) == self._pattern else None

    def handle(self, broker: BrokerServer, fields: Fields) -> LateFrame | None:
        """Commit the offsets of a request that fits, if nothing else has changed."""
        groups = broker.groups
        if broker.images.image is not self._image and not self._look_again(broker):
            return None
        repeated = self._repeated
        offsets, leader_epochs = fields[_OFFSETS], fields[_LEADER_EPOCHS]
        try:
            shard = groups.shard(self._coordinator_index)
            committed = shard.machine.offsets
            if not committed.accept_repeated(repeated, self._version):
                return None
            now_ms = broker.clock.now_ms()
            batch = repeated.batch(now_ms, offsets, leader_epochs)
            take_in = partial(committed.replay_repeated, repeated, now_ms, offsets, leader_epochs)
            if not shard.append_built(batch, repeated.record_count, now_ms, take_in):
                return None
        except KafkaError:
            # The slow path runs into the same error, and handles it.
            return None
        broker.offset_commits += repeated.record_count
        return partial(self._reply, broker, shard, shard.partition.log.log_end_offset, fields[1])

    def _look_again(self, broker: BrokerServer) -> bool:
        """Check the topics in a new image; False if one of them has changed."""
        image = broker.image
        if any(image.topic(topic.name) is not topic for topic in self._topics):
            return False
        self._image = image
        self._coordinator_index = broker.groups.partition_of(self._repeated.request.group_id)
        return True

    def _reply(
        self, broker: BrokerServer, shard: Shard[Any], end_offset: int, correlation_id: int
    ) -> Frame | PendingFrame:
        loss = shard.loss
        if loss is not None or shard.is_committed(end_offset):
            return self._frame(broker, correlation_id, loss)
        pending = PendingFrame()
        shard.when_committed(
            end_offset, lambda error: pending.fill(self._frame(broker, correlation_id, error))
        )
        return pending

    def _frame(self, broker: BrokerServer, correlation_id: int, error: KafkaError | None) -> Frame:
        if error is not None:
            broker.requests.refused("OffsetCommit", error.code)
            refused = commit_refused(self._repeated.request, error)
            return list(encode_response(refused, self._version, correlation_id))
        return [self._answer_size + correlation_id.to_bytes(4, "big", signed=True) + self._answer]


def _common_commit(image: ClusterImage, frame: bytes, body_offset: int) -> _CommonCommit | None:
    """Prepare for commits like this one, if it is a common one."""
    version = int.from_bytes(frame[2:_HEAD_END], "big")
    request, _ = OffsetCommitRequest.decode(version, frame, body_offset)
    if request.encode(version) != frame[body_offset:]:
        return None
    found = [_topic_image(image, topic, version) for topic in request.topics]
    known = [topic for topic in found if topic is not None]
    if not known or len(known) < len(found):
        return None
    named = [topic.replace(name=at.name) for topic, at in zip(request.topics, known, strict=True)]
    request = request.replace(topics=tuple(named))
    common = _CommonCommit(frame, body_offset, request, tuple(known))
    return common if common.size == len(frame) else None


def _topic_image(
    image: ClusterImage, topic: OffsetCommitRequestTopic, version: int
) -> TopicImage | None:
    """Return the topic if it exists with all the partitions asked for, at least one."""
    if version < _FIRST_WITH_TOPIC_IDS:
        found = image.topic(topic.name)
    else:
        found = image.topic_by_id(topic.topic_id)
    if found is None or not topic.partitions:
        return None
    is_whole = all(each.partition_index in found.partitions for each in topic.partitions)
    return found if is_whole else None
