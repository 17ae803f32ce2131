"""Requests with many entries, of any kind, built from their declarations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dohle.protocol.schema import Request, Struct

#: Names the entries of a request by their numbers.
Naming = Callable[[int], str]
#: Where an array is: the names of the fields that lead to it.
Path = tuple[str, ...]

#: Scalars without which a request would be refused before its entries are looked at.
_VALUES: dict[str, Any] = {
    "timeout_ms": 30_000,
    "group_id": "g",
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "replication_factor": -1,
    "num_partitions": -1,
    "replica_id": -1,
    "generation_id_or_member_epoch": -1,
    "generation_id": -1,
    "member_epoch": -1,
    "transactional_id": "tx",
    "v3_and_below_transactional_id": "tx",
    "protocol_type": "consumer",
    "retention_time_ms": -1,
    "resource_type": 2,
    "response_partition_limit": 2_000,
    "count": -1,
    "timestamp": -1,
    "current_leader_epoch": -1,
    "max_num_offsets": 1,
    "allow_auto_topic_creation": False,
}
_NAMES = frozenset(
    {
        "group_id",
        "item",
        "key",
        "member_id",
        "name",
        "resource_name",
        "topic",
        "topic_name",
        "transactional_id",
    }
)
_NUMBERS = frozenset({"item", "partition", "partition_index"})
_SMALL_KINDS = {"int8": 2, "int16": 2}


def arrays(cls: type[Struct], version: int, path: Path = ()) -> Iterator[Path]:
    """Find the arrays of a message, also those inside of others."""
    for name, field in cls.FIELDS.items():
        if not field.versions.covers(version) or field.tag is not None:
            continue
        here = (*path, name)
        if field.kind == "array":
            yield here
        if isinstance(field.element, type):
            yield from arrays(field.element, version, here)


def request_of_many(
    cls: type[Request], version: int, path: Path, count: int, naming: Naming
) -> Request:
    """Make a request with so many entries in one of its arrays, and few in the others."""
    made: Request = _Maker(version, path, count, naming).struct(cls, (), is_many=False)
    return made


class _Maker:
    def __init__(self, version: int, path: Path, count: int, naming: Naming) -> None:
        self._version = version
        self._path = path
        self._count = count
        self._naming = naming
        self._number = 0

    def struct(self, cls: type[Struct], path: Path, *, is_many: bool) -> Any:
        values: dict[str, Any] = {}
        for name, field in cls.FIELDS.items():
            if not field.versions.covers(self._version) or field.tag is not None:
                continue
            here = (*path, name)
            is_null = field.nullable.covers(self._version) and field.default is None
            if field.kind == "array":
                values[name] = self._array(field.element, here, is_many=is_many)
            elif field.kind == "struct":
                assert isinstance(field.element, type)
                values[name] = None if is_null else self.struct(field.element, here, is_many=False)
            else:
                values[name] = None if is_null else self._scalar(name, field.kind, is_many=is_many)
        return cls(**values)

    def _array(self, element: Any, path: Path, *, is_many: bool) -> tuple[Any, ...]:
        is_target = path == self._path
        count = self._count if is_target else int(self._path[: len(path)] == path)
        found = []
        for number in range(count):
            if is_target:
                self._number = number
            is_one_of_many = is_many or is_target
            if isinstance(element, str):
                found.append(self._scalar("item", element, is_many=is_one_of_many))
            else:
                found.append(self.struct(element, path, is_many=is_one_of_many))
        return tuple(found)

    def _scalar(self, name: str, kind: str, *, is_many: bool) -> Any:
        match kind:
            case "string":
                if is_many and name in _NAMES:
                    return self._naming(self._number)
                return _VALUES.get(name, self._naming(0))
            case "uuid":
                return self._number.to_bytes(16, "big")
            case "boolean":
                return _VALUES.get(name, False)
            case "binary" | "record_data":
                return b""
            case _ if is_many and name in _NUMBERS:
                return _SMALL_KINDS.get(kind, self._number)
            case _:
                return _VALUES.get(name, 0)
