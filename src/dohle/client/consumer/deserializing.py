"""Records with keys and values as their deserializers make them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dohle.client.consumer.fetched import ConsumedRecord
from dohle.client.serializers import (
    Deserializer,
    Serialization,
    SerializationFailed,
    deserializer_of,
)


def record_deserializer(
    key: Serialization | None, value: Serialization | None
) -> Callable[[ConsumedRecord], ConsumedRecord] | None:
    """Return what deserializes a record; None if its bytes are handed out."""
    of_key = deserializer_of(key, "key_deserializer")
    of_value = deserializer_of(value, "value_deserializer")
    if of_key is None and of_value is None:
        return None

    def deserialize(item: ConsumedRecord) -> ConsumedRecord:
        record = item.record
        return item._replace(
            record=record._replace(
                key=_read(item, "key", record.key, of_key),
                value=_read(item, "value", record.value, of_value),
            )
        )

    return deserialize


def _read(
    item: ConsumedRecord, what: str, data: bytes | None, deserializer: Deserializer | None
) -> Any:
    if data is None or deserializer is None:
        return data
    try:
        return deserializer(data)
    except Exception as error:
        raise SerializationFailed(
            f"the {what} of {item.topic}-{item.partition} at offset {item.offset} is not "
            f"deserialized: {error}; the consumer stands behind it and may go on"
        ) from error
