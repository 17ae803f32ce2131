"""The names of partition folders, and ``partition.metadata``, which has the topic id.

A partition's folder is ``<topic>-<partition>``; the name is split at its last dash. Three kinds
have an ending: ``<topic>-<partition>.<unique>-delete`` is being deleted in the background,
``-stray`` was found but is not assigned to this broker, ``-future`` is being filled to replace the
live one in another directory. The unique part is the 32 hex digits of a uuid. With the first two
the topic is shortened so that the name fits into the 255 bytes that file systems allow.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, NamedTuple

from dohle.core.ids import TopicName, TopicPartition, Uuid
from dohle.core.uuid import ZERO_UUID, uuid_from_text, uuid_to_text
from dohle.storage.files import FileSystem, join, write_atomically

PARTITION_METADATA: Final = "partition.metadata"
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"

#: The longest name that file systems allow.
NAME_LENGTH_MAX = 255
_PARTITION_MAX = (1 << 31) - 1
_METADATA_START = b"version: 0\ntopic_id: "
_METADATA_FIELD = re.compile(rb":\s+")
_SUFFIXED = re.compile(r"(\S+-\S+)\.[^\s.]+-(delete|stray|future)", re.ASCII)


class PartitionDirKind(Enum):
    """The purpose of a partition folder; the value is the ending of its name."""

    LIVE = ""
    DELETE = "-delete"
    STRAY = "-stray"
    FUTURE = "-future"


class PartitionDir(NamedTuple):
    """The parts of a partition folder's name. A shortened topic stays shortened."""

    topic_partition: TopicPartition
    kind: PartitionDirKind


class NotAPartitionDir(Exception):
    """A folder in a log directory whose name is not that of a partition folder."""


class CorruptPartitionMetadata(Exception):
    """A ``partition.metadata`` that is not in the format; the text names the file."""


#: Kafka's name of the folder where indexes of remote segments are cached.
REMOTE_INDEX_CACHE = "remote-log-index-cache"


def partition_dir_name(topic_partition: TopicPartition) -> str:
    """Return the name of the folder in use."""
    return f"{topic_partition.topic}-{topic_partition.partition}"


def delete_dir_name(topic_partition: TopicPartition, unique: Uuid) -> str:
    """Return the name of a folder that is to be deleted."""
    return _capped_name(topic_partition, unique, PartitionDirKind.DELETE)


def stray_dir_name(topic_partition: TopicPartition, unique: Uuid) -> str:
    """Return the name of a folder that is kept, but not assigned to this broker."""
    return _capped_name(topic_partition, unique, PartitionDirKind.STRAY)


def future_dir_name(topic_partition: TopicPartition, unique: Uuid) -> str:
    """Return the name of a folder that is to replace the one in use. It is never shortened."""
    return f"{partition_dir_name(topic_partition)}.{unique.hex()}{PartitionDirKind.FUTURE.value}"


def _capped_name(topic_partition: TopicPartition, unique: Uuid, kind: PartitionDirKind) -> str:
    end = f"-{topic_partition.partition}.{unique.hex()}{kind.value}"
    return topic_partition.topic[: NAME_LENGTH_MAX - len(end)] + end


def parse_partition_dir(name: str) -> PartitionDir:
    """Return the partition and the kind of a folder by its name, or raise NotAPartitionDir."""
    kind = PartitionDirKind.LIVE
    live_name = name
    if name.endswith(("-delete", "-stray", "-future")):
        found = _SUFFIXED.fullmatch(name)
        if found is None:
            raise _not_a_partition(name)
        live_name, kind = found[1], PartitionDirKind(f"-{found[2]}")
    topic, _, digits = live_name.rpartition("-")
    # Only one spelling for each partition: Java would also accept a-07 and a-+7 as a-7.
    plain = digits.isascii() and digits.isdigit() and (digits == "0" or digits[0] != "0")
    if not topic or not plain or len(digits) > 10 or int(digits) > _PARTITION_MAX:
        raise _not_a_partition(name)
    return PartitionDir(TopicPartition(TopicName(topic), int(digits)), kind)


def _not_a_partition(name: str) -> NotAPartitionDir:
    return NotAPartitionDir(
        f"{name!r} is not the name of a partition folder: <topic>-<partition>, or that followed by "
        ".<unique id>-delete, -stray or -future. A log directory holds nothing else: move the "
        "folder elsewhere."
    )


def write_partition_metadata(
    fs: FileSystem, folder: str, topic_id: Uuid, *, sync: bool = True
) -> None:
    """Write the topic id and, unless ``sync`` is False, return once it is on the disk."""
    if topic_id == ZERO_UUID:
        raise ValueError(f"{folder}: the zero uuid is no topic id")
    content = _METADATA_START + uuid_to_text(topic_id).encode()
    write_atomically(fs, join(folder, PARTITION_METADATA), content, sync=sync)


def read_partition_metadata(fs: FileSystem, folder: str) -> Uuid | None:
    """Return the topic id, or None if there is none.

    There is none in a folder from before topic ids, or after a power cut before the first flush.
    """
    path = join(folder, PARTITION_METADATA)
    try:
        data = fs.read(path)
    except FileNotFoundError:
        return None
    if not data.strip(b"\0"):
        return None
    try:
        topic_id = _parse_topic_id(data)
    except ValueError as error:
        raise CorruptPartitionMetadata(f"{path}: {error}") from None
    if topic_id == ZERO_UUID:
        raise CorruptPartitionMetadata(f"{path}: the zero uuid is no topic id")
    return topic_id


def _parse_topic_id(data: bytes) -> Uuid:
    if data.startswith(_METADATA_START) and len(data) == len(_METADATA_START) + 22:
        return uuid_from_text(data[len(_METADATA_START) :].decode("latin-1"))
    # Kafka accepts more than it writes: later versions, more white space, further lines.
    values = [_METADATA_FIELD.split(line.rstrip()) for line in data.splitlines()[:2]]
    if len(values) != 2 or not all(len(value) == 2 for value in values):
        raise ValueError("it must have a 'version: ' and a 'topic_id: ' line")
    version, topic_id = values[0][1], values[1][1]
    if not version.isdigit():
        raise ValueError(f"{version[:60]!r} is not a version")
    return uuid_from_text(topic_id.decode("latin-1"))
