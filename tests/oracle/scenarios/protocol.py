"""Requests that nobody should send: versions, keys and bytes that there are not."""

from __future__ import annotations

import struct

from tests.oracle.scenario import Run


def _header(key: int, version: int, body: bytes = b"") -> bytes:
    return struct.pack(">hhih", key, version, 1, 1) + b"c" + body


async def unknown_versions(run: Run) -> None:
    """ApiVersions is answered whatever its version; all else closes the connection."""
    client = await run.client()
    for version in (5, 9999, -1):
        await client.send_frame("ApiVersions", 0, _header(18, version), note=f"version {version}")
    for name, key, version in (
        ("Metadata", 3, 14),
        ("Metadata", 3, -1),
        ("Produce", 0, 14),
        ("Fetch", 1, 99),
        ("OffsetCommit", 8, 1),
        ("OffsetFetch", 9, 0),
        ("CreateTopics", 19, 1),
        ("Heartbeat", 12, 5),
    ):
        await client.send_frame(name, 3, _header(key, version), note=f"version {version}")
    for key in (4, 7, 999, -1):
        await client.send_frame("Metadata", 3, _header(key, 0), note=f"key {key}")


async def malformed(run: Run) -> None:
    """Bodies that end too early, or never."""
    client = await run.client()
    for note, name, frame in (
        ("no body", "Metadata", _header(3, 3)),
        ("a cut body", "Metadata", _header(3, 3, b"\0\0\0\1\0\5ab")),
        ("a huge array", "Metadata", _header(3, 3, b"\x7f\xff\xff\xff")),
        ("a negative text", "Heartbeat", _header(12, 3, b"\xff\xfe")),
        ("null where there must be a text", "Heartbeat", _header(12, 3, b"\xff\xff")),
        ("no header", "Metadata", b"\0\3\0\3"),
        ("nothing", "Metadata", b""),
    ):
        await client.send_frame(name, 3, frame, note=note)
