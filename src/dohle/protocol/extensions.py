"""Tagged fields of our own in Kafka's messages, for what no API of Kafka's tells.

The declarations in ``messages`` are Kafka's; these fields are among their ``unknown_tags``. A tag
is far above those that Kafka gives out, one after the other from 0. Kafka ignores tags that it does
not know, in requests and in responses, so it answers without; and a response has one only if its
request asks for it, so that no other client ever sees one.

| message, from version 2 on | tag | content |
|---|---|---|
| DescribeLogDirs request | 6582120 | empty: asks for the next |
| DescribeLogDirs response, partitions of compacted topics | 6582120 | CleaningDescription v0 |
"""

from __future__ import annotations

from typing import Final

from dohle.protocol.fields import float64, int64, string
from dohle.protocol.schema import Message, Struct

#: "doh" in hexadecimal digits.
CLEANING_TAG: Final = 0x646F68


class CleaningDescription(Message, versions="0", flexible="0+"):
    """How far the log of a compacted topic is cleaned."""

    #: How much of what a round of cleaning would read is dirty, from 0 to 1.
    dirty_ratio: float = float64("0+")
    #: When the last round of its cleaning ended, since the broker was started; -1 if none did.
    last_cleaned_ms: int = int64("0+", default=-1)
    #: Why the log cannot be cleaned, if it cannot.
    uncleanable_reason: str | None = string("0+", nullable=True, default=None)


def extension(message: Struct, tag: int) -> bytes | None:
    """Return the content of a tagged field; None if the message does not have it."""
    return next((content for each, content in message.unknown_tags if each == tag), None)
