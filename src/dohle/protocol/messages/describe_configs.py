"""DescribeConfigs, api key 32: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.protocol.fields import array, boolean, int8, int16, int32, string
from dohle.protocol.schema import Request, Response, Struct


class DescribeConfigsResource(Struct):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configuration_keys: tuple[str, ...] | None = array(string, "0+", nullable=True)


class DescribeConfigsRequest(Request, api_key=32, versions="0-4", flexible="4+"):
    resources: tuple[DescribeConfigsResource, ...] = array(DescribeConfigsResource, "0+")
    include_synonyms: bool = boolean("1+")
    include_documentation: bool = boolean("3+")


class DescribeConfigsSynonym(Struct):
    name: str = string("1+")
    value: str | None = string("1+", nullable=True)
    source: int = int8("1+")


class DescribeConfigsResourceResult(Struct):
    name: str = string("0+")
    value: str | None = string("0+", nullable=True)
    read_only: bool = boolean("0+")
    is_default: bool = boolean("0")
    config_source: int = int8("1+", default=-1, ignorable=True)
    is_sensitive: bool = boolean("0+")
    synonyms: tuple[DescribeConfigsSynonym, ...] = array(
        DescribeConfigsSynonym, "1+", ignorable=True
    )
    config_type: int = int8("3+", ignorable=True)
    documentation: str | None = string("3+", nullable=True, ignorable=True)


class DescribeConfigsResult(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable=True)
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: tuple[DescribeConfigsResourceResult, ...] = array(DescribeConfigsResourceResult, "0+")


class DescribeConfigsResponse(Response, api_key=32, versions="0-4", flexible="4+"):
    throttle_time_ms: int = int32("0+")
    results: tuple[DescribeConfigsResult, ...] = array(DescribeConfigsResult, "0+")
