"""What can be wrong with record data, each kind with its code in Kafka's error table.

Everything that reads untrusted bytes in this package raises one of these, whatever the bytes are:
:class:`CorruptBatch` for framing, checksums and compressed data, :class:`InvalidRecord` for records
that do not parse inside a batch that does.
"""

from __future__ import annotations

from dohle.core.errors import ErrorCode, KafkaError


class CorruptBatch(KafkaError):
    """A batch whose framing, checksum or compressed data is invalid."""

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)
        #: Where the batch starts in the buffer that was read, if known.
        self.position = position


class IncompleteBatch(CorruptBatch):
    """The buffer ends within a batch: a torn tail on disk, or a normal cut in a fetch response."""


class WrongChecksum(CorruptBatch):
    """A batch, or a message of an old format, whose checksum is not that of its bytes."""


class InvalidRecord(KafkaError):
    """A record that does not follow the format, inside a correctly framed batch."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


class WrongFormat(InvalidRecord):
    """A message of another format than those before it."""


class WrongOffsets(InvalidRecord):
    """A batch whose offsets, count or sequence number no client may give."""


class DecompressedTooLarge(KafkaError):
    """Compressed data that would decompress to more than its reader allows."""

    def __init__(self, codec: str, max_bytes: int) -> None:
        super().__init__(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the {codec} data of a batch holds more than the {max_bytes} bytes allowed",
        )
