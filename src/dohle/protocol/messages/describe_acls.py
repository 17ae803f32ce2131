"""DescribeAcls, api key 29: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.protocol.fields import array, int8, int16, int32, string
from dohle.protocol.schema import Request, Response, Struct


class DescribeAclsRequest(Request, api_key=29, versions="0-3", flexible="2+"):
    resource_type_filter: int = int8("0+")
    resource_name_filter: str | None = string("0+", nullable=True)
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string("0+", nullable=True)
    host_filter: str | None = string("0+", nullable=True)
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class AclDescription(Struct):
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class DescribeAclsResource(Struct):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    pattern_type: int = int8("1+", default=3)
    acls: tuple[AclDescription, ...] = array(AclDescription, "0+")


class DescribeAclsResponse(Response, api_key=29, versions="0-3", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable=True)
    resources: tuple[DescribeAclsResource, ...] = array(DescribeAclsResource, "0+")
