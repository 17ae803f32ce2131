"""Requests from plain values: ``make_request("Heartbeat", 4, {"group_id": "g"})``.

Structs are dicts and arrays are lists. What a version does not have is left out of it, so that one
body serves for all versions; a field that no version has is a mistake of the scenario.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from dohle.protocol.apis import APIS, Api, ApiKey
from dohle.protocol.schema import Request, Struct
from dohle.server.net.handler import Handler
from dohle.server.registry import all_handlers, controller_handlers

_BY_NAME = {api.name: api for api in APIS.values()}


def handlers_of_controllers() -> dict[ApiKey, Handler]:
    """Return what is served on the listeners of controllers."""

    def take(*request: object) -> NoReturn:
        raise AssertionError("nobody asks")

    return controller_handlers(take)


def api_named(name: str) -> Api:
    """Return an API by Kafka's name for it."""
    return _BY_NAME[name]


def versions_of(name: str) -> range:
    """Return the versions that both dohle and the release of Kafka serve."""
    api = api_named(name)
    handler = all_handlers().get(api.key) or handlers_of_controllers()[api.key]
    lowest = max(handler.lowest, api.release_versions.lowest)
    return range(lowest, min(handler.highest, api.release_versions.highest) + 1)


def make_request(name: str, version: int, body: Mapping[str, Any]) -> Request:
    """Build a request."""
    request = _build(api_named(name).request(), version, body)
    assert isinstance(request, Request)
    return request


def _build(struct: type[Struct], version: int, values: Mapping[str, Any]) -> Struct:
    unknown = set(values) - set(struct.FIELDS)
    assert not unknown, f"{struct.__name__} has no {unknown}"
    return struct(
        **{
            name: _value(field.element, version, values[name])
            for name, field in struct.FIELDS.items()
            if name in values and field.versions.covers(version)
        }
    )


def _value(element: str | type[Struct] | None, version: int, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_value(element, version, each) for each in value)
    if isinstance(value, dict):
        assert isinstance(element, type)
        return _build(element, version, value)
    return value
