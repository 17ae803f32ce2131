"""Objects of a segment, as Aiven's plugin lays them out (T19, T20)."""

from __future__ import annotations

import json

import pytest

from dohle.core.uuid import uuid_from_text
from dohle.tiering.layout import (
    LOG,
    InvalidManifest,
    decode_manifest,
    encode_manifest,
    index_places,
    object_key,
)
from dohle.tiering.segments import RemoteSegment, SegmentId
from tests.tiering.values import segment


def test_keys_are_those_of_the_plugin() -> None:
    """T19: its own example."""
    found = RemoteSegment(
        SegmentId(
            "topic",
            uuid_from_text("MWJ6FHTfRYy67jzwZdeqSQ"),
            7,
            uuid_from_text("tqimKeZwStOEOwRzT3L5oQ"),
        ),
        *(1234, 2000, 0, 1, 0, ((0, 1234),), 10),
    )
    key = "pre/topic-MWJ6FHTfRYy67jzwZdeqSQ/7/00000000000000001234-tqimKeZwStOEOwRzT3L5oQ.log"
    assert object_key(found, LOG, "pre/") == key


def test_a_manifest_has_the_fields_of_the_plugin_and_no_other() -> None:
    """T20: unknown fields are refused there; a missing transaction index is null."""
    parts = {
        "offset": bytes(8),
        "timestamp": bytes(12),
        "producerSnapshot": b"abc",
        "leaderEpoch": b"0\n",
    }
    found = json.loads(encode_manifest(segment(1, 0, 1000, size=10), index_places(parts)))
    assert sorted(found) == [
        "chunkIndex",
        "compression",
        "remoteLogSegmentMetadata",
        "segmentIndexes",
        "version",
    ]
    assert found["version"] == "1"
    assert found["segmentIndexes"] == {
        "offset": {"position": 0, "size": 8},
        "timestamp": {"position": 8, "size": 12},
        "producerSnapshot": {"position": 20, "size": 3},
        "leaderEpoch": {"position": 23, "size": 2},
        "transaction": None,
    }
    assert found["remoteLogSegmentMetadata"]["segmentLeaderEpochs"] == {"0": 0}


@pytest.mark.parametrize(
    ("size", "last"), [(10, 10), (4 << 20, 4 << 20), ((4 << 20) + 1, 1), (8 << 20, 4 << 20)]
)
def test_the_last_chunk_has_the_rest(size: int, last: int) -> None:
    """T20."""
    chunks = json.loads(encode_manifest(segment(1, 0, 1000, size=size), {}))["chunkIndex"]
    assert (chunks["originalFileSize"], chunks["finalTransformedChunkSize"]) == (size, last)


def test_a_manifest_is_read_back() -> None:
    """T20."""
    parts = dict.fromkeys(("offset", "timestamp", "producerSnapshot", "leaderEpoch"), b"ab")
    places = index_places(parts)
    manifest = decode_manifest(encode_manifest(segment(1, 0, 9, size=77), places))
    assert (manifest.log_size, manifest.indexes) == (77, places)


@pytest.mark.parametrize(
    "change",
    [
        {"version": "2"},
        {"compression": True},
        {"encryption": {"dataKey": "k:1", "aad": ""}},
        {"chunkIndex": {"type": "variable"}},
        {"segmentIndexes": {"offset": None}},
        {"chunkIndex": None},
    ],
)
def test_what_cannot_be_read_is_refused(change: dict[str, object]) -> None:
    """T21: segments that were transformed are not read here."""
    parts = dict.fromkeys(("offset", "timestamp", "producerSnapshot", "leaderEpoch"), b"ab")
    found = json.loads(encode_manifest(segment(1, 0, 9), index_places(parts)))
    with pytest.raises(InvalidManifest):
        decode_manifest(json.dumps({**found, **change}).encode())
