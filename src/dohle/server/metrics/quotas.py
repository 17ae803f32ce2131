"""What clients with quotas do, and how long they are made to wait, by Kafka's names."""

from __future__ import annotations

from collections.abc import Iterator

from dohle.metrics.exposition import family, labels
from dohle.quotas.entities import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from dohle.quotas.meters import MeterReading
from dohle.server.metrics.sources import Sources

_RESOURCES = {
    PRODUCER_BYTE_RATE: "Produce",
    CONSUMER_BYTE_RATE: "Fetch",
    REQUEST_PERCENTAGE: "Request",
}
#: How many are told of before others have their turn.
_TOLD_AT_ONCE = 64


def collect_quotas(sources: Sources) -> Iterator[str]:
    """Tell of everybody who is measured: those who have a quota."""
    broker = sources.broker
    if broker is None:
        return
    now_ms = broker.clock.monotonic_ms()
    rates: list[tuple[str, float]] = []
    times: list[tuple[str, float]] = []
    waits: list[tuple[str, float]] = []
    for key, resource in _RESOURCES.items():
        for number, told in enumerate(broker.quotas.meters[key].told(now_ms), 1):
            of = _labels(resource, told)
            (times if key == REQUEST_PERCENTAGE else rates).append((of, told.rate))
            waits.append((of, told.throttle_ms))
            if not number % _TOLD_AT_ONCE:
                yield ""
    yield from family(
        "kafka_server_quota_byte_rate",
        "gauge",
        "Bytes a second that clients with a quota have produced or fetched lately.",
        rates,
    )
    yield from family(
        "kafka_server_quota_request_time",
        "gauge",
        "Percent of the loop's time that clients with a quota have used lately.",
        times,
    )
    yield from family(
        "kafka_server_quota_throttle_time",
        "gauge",
        "Milliseconds that such clients were told to wait, on average of the times they were.",
        waits,
    )


def _labels(resource: str, told: MeterReading) -> str:
    user, client_id = told.bucket
    return labels({"resource": resource, "user": user, "clientId": client_id})
