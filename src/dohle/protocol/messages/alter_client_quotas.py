"""AlterClientQuotas, api key 49: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.protocol.fields import array, boolean, float64, int16, int32, string
from dohle.protocol.schema import Request, Response, Struct


class EntityData(Struct):
    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable=True)


class OpData(Struct):
    key: str = string("0+")
    value: float = float64("0+")
    remove: bool = boolean("0+")


class AlterClientQuotasRequestEntryData(Struct):
    entity: tuple[EntityData, ...] = array(EntityData, "0+")
    ops: tuple[OpData, ...] = array(OpData, "0+")


class AlterClientQuotasRequest(Request, api_key=49, versions="0-1", flexible="1+"):
    entries: tuple[AlterClientQuotasRequestEntryData, ...] = array(
        AlterClientQuotasRequestEntryData, "0+"
    )
    validate_only: bool = boolean("0+")


class AlterClientQuotasResponseEntryData(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable=True)
    entity: tuple[EntityData, ...] = array(EntityData, "0+")


class AlterClientQuotasResponse(Response, api_key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32("0+")
    entries: tuple[AlterClientQuotasResponseEntryData, ...] = array(
        AlterClientQuotasResponseEntryData, "0+"
    )
