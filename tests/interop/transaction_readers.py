"""What readers of committed and of uncommitted records see of a partition."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import confluent_kafka

# The module re-exports its classes in a way that a type checker does not follow.
admin_api: Any = import_module("confluent_kafka.admin")


def read_all(bootstrap: str, topic: str, partition: int = 0, *, committed: bool) -> list[bytes]:
    """Read a partition to its end, as that kind of reader sees it."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "not-used",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "fetch.wait.max.ms": 20,
            "log_level": 0,
        }
    )
    found: list[bytes] = []
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
        while True:
            message = consumer.poll(20)
            assert message is not None, "neither a record nor the end"
            error = message.error()
            if error is None:
                found.append(message.value() or b"")
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                return found
            else:
                raise confluent_kafka.KafkaException(error)
    finally:
        consumer.close()


def end_offset(bootstrap: str, topic: str, partition: int = 0, *, committed: bool) -> int:
    """Return the last stable offset, or the high watermark."""
    admin = admin_api.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    place = confluent_kafka.TopicPartition(topic, partition)
    isolation = (
        confluent_kafka.IsolationLevel.READ_COMMITTED
        if committed
        else confluent_kafka.IsolationLevel.READ_UNCOMMITTED
    )
    futures = admin.list_offsets(
        {place: admin_api.OffsetSpec.latest()}, isolation_level=isolation, request_timeout=20
    )
    return int(futures[place].result(20).offset)


def is_stable(bootstrap: str, topic: str, partition: int = 0) -> bool:
    """Tell whether no transaction is open."""
    ends = {end_offset(bootstrap, topic, partition, committed=each) for each in (True, False)}
    return len(ends) == 1
