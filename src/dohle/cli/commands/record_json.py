"""Records from JSON lines, as ``dohle consume --json`` writes them."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from dohle.cli.commands.record_batches import NewRecord
from dohle.records.record import Header

_INT64_MAX = (1 << 63) - 1


def parse_record(line: bytes, *, now_ms: int, with_partition: bool) -> NewRecord:
    """Return the record of a line; a ValueError says what is wrong with it.

    What is missing is null, or left to the producer: timestamp, partition. Other fields (topic,
    offset, leaderEpoch) say where the record was, and are passed over.
    """
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError("it is not a JSON object")
    if "value" not in fields:
        raise ValueError("it has no value; write null for a record without one")
    partition = _number(fields, "partition") if with_partition else None
    timestamp = _number(fields, "timestamp", least=-1)
    return NewRecord(
        _bytes(fields.get("key"), "key"),
        _bytes(fields["value"], "value"),
        now_ms if timestamp is None or timestamp < 0 else timestamp,
        _headers(fields.get("headers")),
        partition,
    )


def _number(fields: dict[str, Any], name: str, least: int = 0) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if type(value) is not int or not least <= value <= _INT64_MAX:
        raise ValueError(f"its {name} is {value!r}, which is not a number from {least} on")
    return value


def _headers(given: object) -> list[Header]:
    if given is None:
        return []
    if not isinstance(given, list):
        raise ValueError('its headers are not a list of {"key": "...", "value": ...}')
    found: list[Header] = []
    for each in given:
        if not isinstance(each, dict) or not isinstance(each.get("key"), str):
            raise ValueError('its headers are not a list of {"key": "...", "value": ...}')
        found.append((each["key"], _bytes(each.get("value"), f"header {each['key']}")))
    return found


def _bytes(given: object, what: str) -> bytes | None:
    """Return what is null, a text, or an object with a text or base64."""
    match given:
        case None:
            return None
        case str():
            return given.encode("utf-8", "surrogatepass")
        case {"utf8": str(text)}:
            return text.encode("utf-8", "surrogatepass")
        case {"base64": str(text)}:
            try:
                return base64.b64decode(text, validate=True)
            except binascii.Error as error:
                raise ValueError(f"its {what} is not base64: {error}") from None
    raise ValueError(f'its {what} is not null, a text, {{"utf8": ...}} or {{"base64": ...}}')
