"""AlterClientQuotas: limits for users, client ids, pairs of them, and addresses.

Of each entity all is changed or nothing; what is all right in a request is written as one batch. As
in Kafka an entity that comes twice is refused, while the changes of its first time are made.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.steps import PlainSteps
from dohle.metadata.decision import (
    RECORDS_PER_REQUEST_MAX,
    Decision,
    VersionedRecord,
    too_many_records,
)
from dohle.metadata.image import ClusterImage, QuotaKey, quota_entity
from dohle.protocol.messages import alter_client_quotas as wire
from dohle.protocol.messages.records.cluster_metadata import ClientQuotaRecord, EntityData
from dohle.quotas.addresses import is_address
from dohle.quotas.entities import CLIENT_ID, CLIENT_KEYS, IP, IP_KEYS, USER, Entity, QuotaNumber

_FRACTION_MAX: Final = 1e-6

#: By type; the name None is the default.
_Names = dict[str, str | None]


def alter_client_quotas(
    image: ClusterImage, request: wire.AlterClientQuotasRequest
) -> PlainSteps[Decision[wire.AlterClientQuotasResponse]]:
    """Decide about changes of quotas."""
    records: list[VersionedRecord] = []
    results: dict[frozenset[tuple[str, str | None]], tuple[_Names, KafkaError | None]] = {}
    for entry in request.entries:
        yield
        names: _Names = {each.entity_type: each.entity_name for each in entry.entity}
        entity = frozenset(names.items())
        try:
            if entity in results or len({op.key for op in entry.ops}) < len(entry.ops):
                raise _invalid(f"Ignoring duplicate entity {_told(names)}")
            found = list(_records(image, names, entry.ops))
        except KafkaError as error:
            results[entity] = names, error
            continue
        results[entity] = names, None
        records += found
        if len(records) > RECORDS_PER_REQUEST_MAX:
            raise too_many_records()
    response = wire.AlterClientQuotasResponse(
        entries=tuple(_result(names, error) for names, error in results.values())
    )
    return Decision(() if request.validate_only else tuple(records), response)


def address_entity(entity: tuple[tuple[str, bool, str], ...]) -> tuple[str | None] | None:
    """Return the address of a quota of the image, (None,) for the default; None if it has none."""
    if len(entity) != 1 or entity[0][0] != IP:
        return None
    ((_, is_named, name),) = entity
    return (name if is_named else None,)


def client_entity(entity: tuple[tuple[str, bool, str], ...]) -> Entity | None:
    """Return the user and client id of a quota of the image; None if it is about neither."""
    names = {kind: name if is_named else None for kind, is_named, name in entity}
    if not names or names.keys() - {USER, CLIENT_ID}:
        return None
    return Entity(names.get(USER, ""), names.get(CLIENT_ID, ""))


def _records(
    image: ClusterImage, names: _Names, ops: Iterable[wire.OpData]
) -> Iterable[VersionedRecord]:
    _check_entity(names)
    keys = IP_KEYS if IP in names else CLIENT_KEYS
    told = tuple(
        EntityData(entity_type=kind, entity_name=name) for kind, name in sorted(names.items())
    )
    entity = quota_entity(told)
    for op in ops:
        now = image.client_quotas.get(QuotaKey(entity, op.key))
        if op.remove:
            if now is not None:
                yield VersionedRecord(ClientQuotaRecord(entity=told, key=op.key, remove=True), 0)
            continue
        _check_number(op.key, op.value, keys.get(op.key))
        if now is None or now.value != op.value:
            yield VersionedRecord(ClientQuotaRecord(entity=told, key=op.key, value=op.value), 0)


def _check_entity(names: _Names) -> None:
    if not names:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in names.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if IP in names and len(names) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity should not be combined with User or "
            "ClientId"
        )
    address = names.get(IP)
    if address is not None and not is_address(address):
        # Names of hosts are not looked up: another node might find another address.
        raise _invalid(f"{address} is not a valid IP or resolvable host.")


def _check_number(key: str, value: float, kind: QuotaNumber | None) -> None:
    """Refuse a value; ``kind`` is None if there is no such quota for the entity."""
    if kind is None:
        raise _invalid(f"Invalid configuration key {key}")
    # (What is not a number is not greater than 0 either.)
    if not value > 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    if kind.largest is None:
        return
    if value > kind.largest:
        raise _invalid(f"Proposed value for {key} is too large for {kind.type_name}.")
    if value % 1.0 > _FRACTION_MAX:
        raise _invalid(f"{key} cannot be a fractional value.")


def _result(names: _Names, error: KafkaError | None) -> wire.AlterClientQuotasResponseEntryData:
    return wire.AlterClientQuotasResponseEntryData(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else str(error.args[0]),
        entity=tuple(
            wire.EntityData(entity_type=kind, entity_name=name) for kind, name in names.items()
        ),
    )


def _told(names: _Names) -> str:
    told = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in names.items())
    return f"ClientQuotaEntity(entries={{{told}}})"


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
