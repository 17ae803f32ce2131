"""A seeded source of malformed frames, of many kinds, around every API that a broker serves.

Most start from a valid request with random content, so that they get past the header and into the
decoder or the handler before something is wrong with them.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, NamedTuple

from dohle.protocol.apis import APIS, find_api
from dohle.protocol.schema import Field, Request, Struct
from tests.interop.wire import batch_of, frame_of, produce_request

INT32_MAX = 2**31 - 1
_NAMES = ("fuzz", "fuzz-a", "", ".", "x" * 300, "größe", "a/b", "\0", "__consumer_offsets")
_INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 16, "uint32": 32}
#: Lengths of a string or an array that there cannot be.
_LENGTHS = (INT32_MAX, -1, -2, -(2**31), 2**16, 2**24, 1 << 30)


class Then(Enum):
    """What follows a malformed frame, so that it comes to an end."""

    #: Nothing: the broker must see by itself that it leads nowhere, and close.
    NOTHING = "nothing"
    #: The end of what is sent: half a frame waits for its rest, a fetch perhaps for days.
    SHUTDOWN = "shutdown"
    #: A valid request, which is answered unless the broker closes.
    VALID_REQUEST = "a valid request"


class Malformed(NamedTuple):
    """Bytes to send on a connection of their own."""

    kind: str
    data: bytes
    then: Then = Then.SHUTDOWN


class ServedApi(NamedTuple):
    """An API in one of the versions that the broker says it serves."""

    api_key: int
    version: int


class Fuzzer:
    """Makes malformed frames; the same seed makes the same frames."""

    def __init__(self, seed: int, served: Sequence[ServedApi]) -> None:
        self._rng = random.Random(seed)
        self._served = served
        self._kinds: list[Callable[[], Malformed]] = [
            self._random_bytes,
            self._random_frame,
            self._impossible_size,
            self._unknown_key,
            self._wrong_version,
            self._half_a_frame,
            self._truncated_body,
            self._garbage_body,
            self._mutated,
            self._mutated,
            self._impossible_length,
            self._impossible_length,
            self._random_content,
            self._spoilt_records,
        ]

    def frames(self, count: int) -> Iterator[Malformed]:
        """Give out so many, all kinds in turn."""
        for number in range(count):
            yield self._kinds[number % len(self._kinds)]()

    # Without a valid request

    def _random_bytes(self) -> Malformed:
        return Malformed("random bytes", self._rng.randbytes(self._rng.randrange(1, 200)))

    def _random_frame(self) -> Malformed:
        return Malformed("a frame of random bytes", framed(self._rng.randbytes(self._size())))

    def _impossible_size(self) -> Malformed:
        size = self._rng.choice([-1, -(2**31), INT32_MAX, 104_857_601, -self._rng.randrange(1000)])
        size = -5 if size == 0 else size
        data = struct.pack(">i", size) + self._rng.randbytes(self._rng.randrange(20))
        return Malformed("an impossible size", data, Then.NOTHING)

    def _unknown_key(self) -> Malformed:
        unknown = [key for key in range(-5, 1000) if key not in APIS]
        head = struct.pack(">hhih", self._rng.choice(unknown), self._rng.randrange(5), 1, -1)
        return Malformed("an unknown key", framed(head + self._rng.randbytes(30)), Then.NOTHING)

    def _wrong_version(self) -> Malformed:
        api_key, _ = self._rng.choice(self._served)
        if api_key == 18:  # ApiVersions is answered whatever its version
            api_key = 3
        version = self._rng.choice([-1, -(2**15), 99, 2**15 - 1])
        head = struct.pack(">hhih", api_key, version, 1, -1)
        data = framed(head + self._rng.randbytes(self._rng.randrange(50)))
        return Malformed("a wrong version", data, Then.NOTHING)

    # From a valid one

    def _half_a_frame(self) -> Malformed:
        data = self._valid()
        return Malformed("half a frame", data[: self._rng.randrange(1, len(data))])

    def _truncated_body(self) -> Malformed:
        body = self._valid()[4:]
        return Malformed("a truncated body", framed(body[: self._rng.randrange(len(body))]))

    def _garbage_body(self) -> Malformed:
        served = self._rng.choice(self._served)
        head = head_of(served)
        return Malformed("a garbage body", framed(head + self._rng.randbytes(self._size())))

    def _mutated(self) -> Malformed:
        data = bytearray(self._valid())
        for _ in range(self._rng.randrange(1, 6)):
            at = self._rng.randrange(8, len(data))  # size, key and version stay
            match self._rng.randrange(3):
                case 0:
                    data[at] = self._rng.randrange(256)
                case 1:
                    data[at] ^= 1 << self._rng.randrange(8)
                case _:
                    data[at : at + 4] = self._rng.choice([b"\xff" * 4, bytes(4), b"\x7f" * 4])
        return Malformed("a mutated request", framed(bytes(data[4:])))

    def _impossible_length(self) -> Malformed:
        """Say somewhere in the body that there are as many elements as there can never be."""
        served = self._rng.choice(self._served)
        data = self._valid(served)
        head_size = 4 + len(head_of(served))
        length = self._rng.choice(_LENGTHS)
        if find_api(served.api_key).flexible.covers(served.version):
            places = [at for at in range(head_size, len(data)) if data[at] in (1, 2, 3)]
            width, new = 1, b"\xff\xff\xff\xff" + bytes([self._rng.choice([0x07, 0x0F, 0x7F])])
        else:
            places = [
                at
                for at in range(head_size, len(data) - 3)
                if data[at : at + 4] in (b"\0\0\0\x01", b"\0\0\0\x02")
            ]
            width, new = 4, struct.pack(">i", length)
        if not places:
            return self._mutated()
        at = self._rng.choice(places)
        body = data[4:at] + new + data[at + width :]
        return Malformed("an impossible length", framed(body))

    def _random_content(self) -> Malformed:
        """A request that can be decoded, but whose content is any."""
        return Malformed("random content", self._valid(), Then.VALID_REQUEST)

    def _spoilt_records(self) -> Malformed:
        """Batches that are wrong inside, to a topic that exists."""
        batch = bytearray(batch_of(*(self._rng.randbytes(20) for _ in range(3))))
        for _ in range(self._rng.randrange(1, 4)):
            batch[self._rng.randrange(len(batch))] = self._rng.randrange(256)
        if self._rng.random() < 0.3:
            del batch[self._rng.randrange(len(batch)) :]
        request = produce_request("fuzz", bytes(batch), acks=self._rng.choice([-1, 0, 1, 7]))
        version = self._rng.choice([3, 7, 8, 9, 12])
        return Malformed("spoilt records", frame_of(request, version), Then.VALID_REQUEST)

    # Parts

    def _size(self) -> int:
        return self._rng.choice([0, 1, 3, 7, 8, 9, 10, 14, 40, 300, 5000])

    def _valid(self, served: ServedApi | None = None) -> bytes:
        """Return the frame of a request with random content."""
        served = served or self._rng.choice(self._served)
        cls: type[Request] = find_api(served.api_key).request()
        flexible = cls.FLEXIBLE.covers(served.version)
        request = self._struct(cls, served.version, flexible)
        return frame_of(request, served.version, self._rng.randrange(INT32_MAX))

    def _struct(self, cls: type[Any], version: int, flexible: bool) -> Any:
        values = {
            name: self._value(name, field, version, flexible)
            for name, field in cls.FIELDS.items()
            if field.versions.covers(version)
        }
        return cls(**values)

    def _value(self, name: str, field: Field, version: int, flexible: bool) -> Any:
        if field.nullable.covers(version) and self._rng.random() < 0.1:
            return None
        if field.kind == "array":
            return tuple(
                self._element(name, field.element, version, flexible)
                for _ in range(self._rng.choice([0, 1, 1, 1, 2]))
            )
        if field.kind == "struct":
            return self._element(name, field.element, version, flexible)
        return self._primitive(name, field.kind)

    def _element(
        self, name: str, element: str | type[Struct] | None, version: int, flexible: bool
    ) -> Any:
        if isinstance(element, str):
            return self._primitive(name, element)
        assert element is not None
        return self._struct(element, version, flexible)

    def _primitive(self, name: str, kind: str) -> Any:
        rng = self._rng
        if kind in _INTEGERS:
            bits = _INTEGERS[kind]
            if kind.startswith("u"):
                return rng.choice([0, 1, (1 << bits) - 1])
            if "wait" in name or "timeout" in name:
                return rng.choice([0, 1, 50, -1, -(1 << bits - 1)])
            edges = [0, 1, -1, 2, (1 << bits - 1) - 1, -(1 << bits - 1)]
            return rng.choice([*edges, rng.randrange(-(1 << bits - 1), 1 << bits - 1)])
        if kind == "string":
            return rng.choice(_NAMES)
        if kind == "boolean":
            return rng.random() < 0.5
        if kind == "uuid":
            return rng.choice([bytes(16), rng.randbytes(16)])
        if kind == "float64":
            return rng.choice([0.0, -1.5, float("inf"), float("nan")])
        if kind == "record_data":
            return rng.choice([b"", batch_of(b"value"), rng.randbytes(100)])
        return rng.randbytes(rng.randrange(30))


def framed(body: bytes) -> bytes:
    """Put the size before it."""
    return struct.pack(">i", len(body)) + body


def head_of(served: ServedApi) -> bytes:
    """Return a header of a request, without the frame's size."""
    head = struct.pack(">hhih", *served, 1, -1)
    is_flexible = find_api(served.api_key).flexible.covers(served.version)
    return head + b"\0" if is_flexible else head
