"""BrokerRegistration, api key 62: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import BrokerId, Uuid
from dohle.protocol.fields import array, boolean, int16, int32, int64, string, uint16, uuid
from dohle.protocol.schema import Request, Response, Struct


class Listener(Struct):
    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")
    security_protocol: int = int16("0+")


class Feature(Struct):
    name: str = string("0+")
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class BrokerRegistrationRequest(Request, api_key=62, versions="0-4", flexible="0+"):
    broker_id: BrokerId = int32("0+")
    cluster_id: str = string("0+")
    incarnation_id: Uuid = uuid("0+")
    listeners: tuple[Listener, ...] = array(Listener, "0+")
    features: tuple[Feature, ...] = array(Feature, "0+")
    rack: str | None = string("0+", nullable=True)
    is_migrating_zk_broker: bool = boolean("1+")
    log_dirs: tuple[Uuid, ...] = array(uuid, "2+", ignorable=True)
    previous_broker_epoch: int = int64("3+", default=-1, ignorable=True)


class BrokerRegistrationResponse(Response, api_key=62, versions="0-4", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    broker_epoch: int = int64("0+", default=-1)
