"""Which objects a segment is in the store: the layout of Aiven's plugin for Kafka (T19-T20).

Three objects: the ``log``, its ``indexes`` one behind the other, and an ``rsm-manifest`` in JSON,
which is written last: where it is, the others are whole. Nothing is compressed or encrypted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from dohle.core.uuid import uuid_to_text
from dohle.tiering.segments import RemoteSegment, SegmentId

#: What the plugin's manual recommends; each segment says its own.
CHUNK_SIZE: Final = 4 * 1024 * 1024
LOG, INDEXES, MANIFEST = "log", "indexes", "rsm-manifest"
#: The order of the parts of ``indexes``.
OFFSET, TIMESTAMP, SNAPSHOT = "offset", "timestamp", "producerSnapshot"
EPOCHS, TRANSACTION = "leaderEpoch", "transaction"
INDEX_KINDS: Final = (OFFSET, TIMESTAMP, SNAPSHOT, EPOCHS, TRANSACTION)
_MAY_BE_MISSING: Final = TRANSACTION


class InvalidManifest(Exception):
    """A manifest that does not describe a segment that can be read here; says why."""


def partition_prefix(segment_id: SegmentId, prefix: str = "") -> str:
    """Return what the keys of all objects of a partition begin with."""
    topic_id = uuid_to_text(segment_id.topic_id)
    return f"{prefix}{segment_id.topic}-{topic_id}/{segment_id.partition}/"


def object_key(segment: RemoteSegment, suffix: str, prefix: str = "") -> str:
    """Return the key of one of a segment's objects."""
    name = f"{segment.start_offset:020d}-{uuid_to_text(segment.id)}.{suffix}"
    return partition_prefix(segment.segment_id, prefix) + name


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is read of a manifest: the size of the log, and where each index is."""

    log_size: int
    #: Position and size in ``indexes``, by kind.
    indexes: dict[str, tuple[int, int]]


def index_places(parts: dict[str, bytes]) -> dict[str, tuple[int, int]]:
    """Return where each index is in ``indexes``, if they are put there in their order."""
    places, position = {}, 0
    for kind in INDEX_KINDS:
        if kind in parts:
            places[kind] = position, len(parts[kind])
            position += len(parts[kind])
    return places


def encode_manifest(segment: RemoteSegment, places: dict[str, tuple[int, int]]) -> bytes:
    """Return the manifest of a segment."""
    rest = segment.size % CHUNK_SIZE or min(segment.size, CHUNK_SIZE)
    place = segment.segment_id
    manifest = {
        "version": "1",
        "chunkIndex": {
            "type": "fixed",
            "originalChunkSize": CHUNK_SIZE,
            "originalFileSize": segment.size,
            "transformedChunkSize": CHUNK_SIZE,
            "finalTransformedChunkSize": rest,
        },
        "segmentIndexes": {
            kind: {"position": places[kind][0], "size": places[kind][1]} if kind in places else None
            for kind in INDEX_KINDS
        },
        "compression": False,
        "remoteLogSegmentMetadata": {
            "remoteLogSegmentId": {
                "topicIdPartition": {
                    "topicId": uuid_to_text(place.topic_id),
                    "topicPartition": {"topic": place.topic, "partition": place.partition},
                },
                "id": uuid_to_text(place.id),
            },
            "startOffset": segment.start_offset,
            "endOffset": segment.end_offset,
            "maxTimestampMs": segment.max_timestamp_ms,
            "brokerId": segment.broker_id,
            "eventTimestampMs": segment.event_timestamp_ms,
            "segmentLeaderEpochs": {str(epoch): offset for epoch, offset in segment.epochs},
        },
    }
    return json.dumps(manifest, separators=(",", ":")).encode()


def decode_manifest(data: bytes) -> Manifest:
    """Read a manifest; InvalidManifest if the segment was transformed, or it is no manifest."""
    try:
        found: dict[str, Any] = json.loads(data)
        version, chunks, indexes = found["version"], found["chunkIndex"], found["segmentIndexes"]
        if version != "1":
            raise InvalidManifest(f"version {version} of the manifest is not known")
        if found.get("compression") or found.get("encryption"):
            raise InvalidManifest("the segment is compressed or encrypted, which is not read here")
        if chunks["type"] != "fixed":
            raise InvalidManifest(f"chunks of type {chunks['type']} are not read here")
        places = {
            kind: (int(place["position"]), int(place["size"]))
            for kind, place in indexes.items()
            if kind in INDEX_KINDS and place is not None
        }
        if missing := set(INDEX_KINDS) - set(places) - {_MAY_BE_MISSING}:
            raise InvalidManifest(f"it does not say where {sorted(missing)[0]} is")
        return Manifest(int(chunks["originalFileSize"]), places)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidManifest(f"it cannot be parsed: {error!r}") from error
