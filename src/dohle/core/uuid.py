"""Kafka's uuids: sixteen raw bytes with a 22-character URL-safe base64 text form.

``uuid.UUID`` objects cost more than a microsecond each to build, so the bytes themselves are the
value. The first hundred values are reserved (directory states, the metadata topic).
"""

from __future__ import annotations

import base64
import binascii

from dohle.core.ids import Uuid
from dohle.core.seams import Rng

ZERO_UUID = Uuid(bytes(16))
METADATA_TOPIC_ID = Uuid(bytes(15) + b"\x01")
RESERVED_UUIDS = 100


def uuid_to_text(uuid: Uuid) -> str:
    """Return the 22-character form that Kafka's files and tools show."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode("ascii")


def uuid_from_text(text: str) -> Uuid:
    """Parse the 22-character form; a ValueError says what is wrong with any other text."""
    try:
        raw = base64.b64decode(text.encode("ascii") + b"==", altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError(f"{text!r} is not a base64 uuid: {error}") from None
    # The decoder also accepts the two special characters of the standard alphabet.
    if len(raw) != 16 or len(text) != 22 or "+" in text or "/" in text:
        raise ValueError(
            f"{text!r} is not a uuid: it takes 22 base64 characters that decode to 16 bytes"
        )
    return Uuid(raw)


def is_reserved(uuid: Uuid) -> bool:
    """Tell whether Kafka reserves this value."""
    return int.from_bytes(uuid, "big") < RESERVED_UUIDS


def random_uuid(rng: Rng) -> Uuid:
    """Draw a version 4 uuid; like Kafka's, it is not reserved and does not start with ``-``."""
    while True:
        raw = bytearray(rng.randbytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        uuid = Uuid(bytes(raw))
        if not is_reserved(uuid) and not uuid_to_text(uuid).startswith("-"):
            return uuid
