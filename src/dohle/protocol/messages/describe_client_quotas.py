"""DescribeClientQuotas, api key 48: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.protocol.fields import array, boolean, float64, int8, int16, int32, string
from dohle.protocol.schema import Request, Response, Struct


class ComponentData(Struct):
    entity_type: str = string("0+")
    match_type: int = int8("0+")
    match: str | None = string("0+", nullable=True)


class DescribeClientQuotasRequest(Request, api_key=48, versions="0-1", flexible="1+"):
    components: tuple[ComponentData, ...] = array(ComponentData, "0+")
    strict: bool = boolean("0+")


class EntityData(Struct):
    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable=True)


class ValueData(Struct):
    key: str = string("0+")
    value: float = float64("0+")


class EntryData(Struct):
    entity: tuple[EntityData, ...] = array(EntityData, "0+")
    values: tuple[ValueData, ...] = array(ValueData, "0+")


class DescribeClientQuotasResponse(Response, api_key=48, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable=True)
    entries: tuple[EntryData, ...] | None = array(EntryData, "0+", nullable=True)
