"""The schema language: one class per message, all its versions in it.

A message reads like a dataclass whose fields say in which versions they exist::

    class HeartbeatRequest(Request, api_key=12, versions="0-4", flexible="4+"):
        group_id: GroupId = string("0+")
        group_instance_id: str | None = string("3+", nullable=True, default=None)

``"0+"`` is every version from 0 on, ``"1-3"`` a closed range, ``"2"`` a single version. The
functions that declare fields are in :mod:`dohle.protocol.fields`.

Rules that hold for every message:

- It is a value: compared by its fields, hashable when they are, and immutable (a type checker
  enforces it; :meth:`Struct.replace` makes a changed copy). Default structs and empty arrays are
  therefore shared.
- Arrays are tuples, so that what was decoded equals what was constructed.
- Every field has a default, as in Kafka: zero, "", empty, false, or what ``default=`` says.
- Tagged fields that the schema does not know are kept in ``unknown_tags``, in ascending order.

Nothing is compiled before the first use, and importing a declaration is cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, Self, dataclass_transform

from dohle.core.steps import CountedSteps, PlainSteps
from dohle.protocol.errors import MalformedMessage, UnencodableMessage, UnsupportedVersion

#: The value of a field of record batches: decoding returns a view into its input, never a copy.
Records = bytes | memoryview
#: What can be decoded.
Buffer = bytes | bytearray | memoryview

VERSION_MAX = 32767


class VersionRange(NamedTuple):
    """The versions from ``lowest`` to ``highest``; empty if ``lowest`` is the larger."""

    lowest: int
    highest: int

    def covers(self, version: int) -> bool:
        """Tell whether the version lies in the range."""
        return self.lowest <= version <= self.highest

    def __str__(self) -> str:
        if self.lowest > self.highest:
            return "none"
        if self.highest == VERSION_MAX:
            return f"{self.lowest}+"
        return str(self.lowest) if self.lowest == self.highest else f"{self.lowest}-{self.highest}"


NO_VERSIONS = VersionRange(0, -1)


@cache
def version_range(text: str) -> VersionRange:
    """Parse ``"3+"``, ``"1-4"``, ``"2"`` or ``"none"``."""
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return VersionRange(int(text[:-1]), VERSION_MAX)
    lowest, _, highest = text.partition("-")
    return VersionRange(int(lowest), int(highest or lowest))


class Field(NamedTuple):
    """One field of a struct, in all its versions."""

    kind: str  # the name of the function in dohle.protocol.fields that declared it
    versions: VersionRange
    nullable: VersionRange
    default: object
    tag: int | None  # a field with a tag is tagged in all its versions
    ignorable: bool  # dropped, rather than refused, where a version lacks the field
    compact: bool  # False: keeps the non-compact length prefix even in flexible versions
    element: str | type[Struct] | None  # of an array: a kind or a struct; of a struct: the struct

    @property
    def default_value(self) -> object:
        """The value of the field if it is not set."""
        if self.default is STRUCT_DEFAULT:
            assert isinstance(self.element, StructMeta)
            return default_struct(self.element)
        return self.default


#: Stands for "the struct with all its defaults", which is created only when it is needed.
STRUCT_DEFAULT = object()


@dataclass_transform(kw_only_default=True, frozen_default=True)
class StructMeta(type):
    """Turns declared fields into slots and keeps the declarations in ``FIELDS``."""

    FIELDS: dict[str, Field]

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> StructMeta:
        """Make the class."""
        fields = {key: value for key, value in namespace.items() if isinstance(value, Field)}
        for key in namespace.setdefault("__slots__", tuple(fields)):
            del namespace[key]  # the declaration: the slot takes its place
        namespace["FIELDS"] = fields
        # Each class has its own, so that a class never inherits the constructor of its base.
        namespace["__init__"] = _first_init
        namespace["_values_of"] = attrgetter(*fields, "unknown_tags")
        return super().__new__(mcs, name, bases, namespace, **options)


def _first_init(self: Struct, **values: Any) -> None:
    """Compile the constructor when the first instance of the class is created."""
    from dohle.protocol.codec.compiler import compile_init

    init = compile_init(type(self))
    type.__setattr__(type(self), "__init__", init)
    init(self, **values)


class Struct(metaclass=StructMeta):
    """Fields in a given order: a part of a message, or a message."""

    __slots__ = ("unknown_tags",)

    FIELDS: ClassVar[dict[str, Field]]
    _values_of: ClassVar[attrgetter[Any]]

    unknown_tags: tuple[tuple[int, bytes], ...] = ()

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed."""
        values = {name: getattr(self, name) for name in self.FIELDS}
        return type(self)(**{**values, "unknown_tags": self.unknown_tags, **changes})

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        assert isinstance(other, Struct)
        return bool(self._values_of(self) == self._values_of(other))

    def __hash__(self) -> int:
        return hash(self._values_of(self))

    def __repr__(self) -> str:
        # Fields with their default would clutter it.
        shown = [
            f"{name}={value!r}"
            for name, field in self.FIELDS.items()
            if (value := getattr(self, name)) != field.default_value
        ]
        if self.unknown_tags:
            shown.append(f"unknown_tags={self.unknown_tags!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


_default_structs: dict[type[Struct], Struct] = {}


def default_struct(struct: type[Struct]) -> Struct:
    """Return the one shared instance whose fields all have their default."""
    # Two threads may create one at the same time; both get the one stored first.
    return _default_structs.get(struct) or _default_structs.setdefault(struct, struct())


#: A compiled decoder: (buffer, offset) -> (message, offset after it).
Decoder = Callable[[Any, int], tuple[Any, int]]
#: The same in steps: (buffer, offset, list to which the message is added first).
StepDecoder = Callable[[Any, int, list[Any]], CountedSteps[tuple[Any, int]]]
#: A compiled encoder: message -> chunks of its encoding.
Encoder = Callable[[Any], list[Records]]


class Message(Struct):
    """A struct that is sent or stored on its own, in one of its versions."""

    VERSIONS: ClassVar[VersionRange] = NO_VERSIONS
    FLEXIBLE: ClassVar[VersionRange] = NO_VERSIONS

    _encoders: ClassVar[dict[int, Encoder]]
    _bytes_decoders: ClassVar[dict[int, Decoder]]
    _view_decoders: ClassVar[dict[int, Decoder]]
    _step_encoders: ClassVar[dict[int, Callable[[Any], PlainSteps[list[Records]]]]]
    _step_decoders: ClassVar[dict[int, StepDecoder]]

    def __init_subclass__(cls, *, versions: str = "none", flexible: str = "none") -> None:
        super().__init_subclass__()
        cls.VERSIONS = version_range(versions)
        cls.FLEXIBLE = version_range(flexible)
        cls._encoders = {}
        cls._bytes_decoders = {}
        cls._view_decoders = {}
        cls._step_encoders = {}
        cls._step_decoders = {}

    def encode(self, version: int) -> bytes:
        """Return the message in the given version."""
        try:
            encoder = self._encoders[version]
        except KeyError:
            encoder = self._encoder(version)
        try:
            return b"".join(encoder(self))
        except TypeError as error:  # records that are not in memory
            raise self._unjoinable(version, error) from None

    def encode_chunks(self, version: int) -> list[Records]:
        """Return the message in pieces: its record batches as they are, everything else joined.

        This is for sending: what is in a log or in a receive buffer is not copied again.
        """
        pieces = (self._encoders.get(version) or self._encoder(version))(self)
        chunks: list[Records] = []
        try:
            if max(map(len, pieces), default=0) < CHUNK_BYTES_MIN:
                return [b"".join(pieces)] if pieces else chunks
            join_small(pieces, chunks)
        except TypeError as error:  # few records, and not in memory
            raise self._unjoinable(version, error) from None
        return chunks

    def encode_chunks_in_steps(self, version: int) -> PlainSteps[list[Records]]:
        """Return the same in steps, in more chunks: for a message that may be very long."""
        encoder = self._step_encoders.get(version)
        if encoder is None:
            from dohle.protocol.codec.compiler import compile_encoder

            self._check_version(version)
            encoder = compile_encoder(type(self), version, in_steps=True)
            self._step_encoders[version] = encoder
        return encoder(self)

    def _unjoinable(self, version: int, error: TypeError) -> UnencodableMessage:
        return UnencodableMessage(f"{type(self).__name__} version {version}: {error}")

    @classmethod
    def decode(cls, version: int, buffer: Buffer, offset: int = 0) -> tuple[Self, int]:
        """Decode a message; return it and the offset of the first byte after it."""
        if type(buffer) is bytes:
            decoder = cls._bytes_decoders.get(version) or cls._decoder(version, view=False)
        else:
            view = buffer if type(buffer) is memoryview else memoryview(buffer)
            buffer = view if view.format == "B" else view.cast("B")
            decoder = cls._view_decoders.get(version) or cls._decoder(version, view=True)
        return decoder(buffer, offset)

    @classmethod
    def decode_in_steps(
        cls, version: int, view: memoryview, offset: int = 0, held: list[Any] | None = None
    ) -> CountedSteps[tuple[Self, int]]:
        """Decode in steps, which are short however long the message is.

        Each tells how many elements the arrays have that it has begun with. ``held`` gets the
        message, to be found there by whoever stops before it is decoded.
        """
        decoder = cls._step_decoders.get(version)
        if decoder is None:
            from dohle.protocol.codec.compiler import compile_decoder

            cls._check_version(version)
            decoder = compile_decoder(cls, version, view=True, in_steps=True)
            cls._step_decoders[version] = decoder
        return decoder(view, offset, [] if held is None else held)

    @classmethod
    def from_bytes(cls, version: int, buffer: Buffer) -> Self:
        """Decode a message that fills the buffer; trailing bytes are an error."""
        message: Self
        if type(buffer) is bytes:
            try:
                decoder = cls._bytes_decoders[version]
            except KeyError:
                decoder = cls._decoder(version, view=False)
            message, end = decoder(buffer, 0)
            size = len(buffer)
        else:
            message, end = cls.decode(version, buffer)
            size = memoryview(buffer).nbytes
        if end != size:
            raise MalformedMessage(f"{cls.__name__} version {version}: {size - end} trailing bytes")
        return message

    @classmethod
    def _encoder(cls, version: int) -> Encoder:
        from dohle.protocol.codec.compiler import compile_encoder

        cls._check_version(version)
        encoder = cls._encoders[version] = compile_encoder(cls, version)
        return encoder

    @classmethod
    def _decoder(cls, version: int, *, view: bool) -> Decoder:
        from dohle.protocol.codec.compiler import compile_decoder

        cls._check_version(version)
        decoder = compile_decoder(cls, version, view=view)
        (cls._view_decoders if view else cls._bytes_decoders)[version] = decoder
        return decoder

    @classmethod
    def _check_version(cls, version: int) -> None:
        if not cls.VERSIONS.covers(version):
            raise UnsupportedVersion(
                f"{cls.__name__} has versions {cls.VERSIONS}, not version {version}"
            )


#: Below this size a copy is cheaper than one more buffer to send.
CHUNK_BYTES_MIN = 1024


def join_small(pieces: Iterable[Records], chunks: list[Records]) -> None:
    """Add pieces to the chunks, long ones as they are, the others joined."""
    small: list[Records] = []
    for piece in pieces:
        if len(piece) < CHUNK_BYTES_MIN:
            small.append(piece)
            continue
        if small:
            chunks.append(b"".join(small))
            small.clear()
        chunks.append(piece)
    if small:
        chunks.append(b"".join(small))


class _WithApiKey(Message):
    API_KEY: ClassVar[int]

    def __init_subclass__(cls, *, api_key: int = -1, **versions: str) -> None:
        super().__init_subclass__(**versions)
        cls.API_KEY = api_key


class Request(_WithApiKey):
    """A client's request; :mod:`dohle.protocol.apis` lists all of them by key."""


class Response(_WithApiKey):
    """The response to the request of the same key and version."""


class MetadataRecord(_WithApiKey):
    """A record framed by its key and version: see :mod:`dohle.protocol.record_framing`."""


class Header(Message):
    """The header of a request or a response."""


class Data(Message):
    """A message that is embedded in others or stored; whoever does so frames it."""


class _WithRecordType(Message):
    RECORD_TYPE: ClassVar[int]

    def __init_subclass__(cls, *, record_type: int = -1, **versions: str) -> None:
        super().__init_subclass__(**versions)
        cls.RECORD_TYPE = record_type


class CoordinatorKey(_WithRecordType):
    """The key of a record in a coordinator's topic; the record type says which message it is."""


class CoordinatorValue(_WithRecordType):
    """The value of a record in a coordinator's topic; its type is the key's."""
