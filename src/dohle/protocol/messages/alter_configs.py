"""AlterConfigs, api key 33: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.protocol.fields import array, boolean, int8, int16, int32, string
from dohle.protocol.schema import Request, Response, Struct


class AlterableConfig(Struct):
    name: str = string("0+")
    value: str | None = string("0+", nullable=True)


class AlterConfigsResource(Struct):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: tuple[AlterableConfig, ...] = array(AlterableConfig, "0+")


class AlterConfigsRequest(Request, api_key=33, versions="0-2", flexible="2+"):
    resources: tuple[AlterConfigsResource, ...] = array(AlterConfigsResource, "0+")
    validate_only: bool = boolean("0+")


class AlterConfigsResourceResponse(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable=True)
    resource_type: int = int8("0+")
    resource_name: str = string("0+")


class AlterConfigsResponse(Response, api_key=33, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    responses: tuple[AlterConfigsResourceResponse, ...] = array(AlterConfigsResourceResponse, "0+")
