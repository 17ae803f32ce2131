"""Throughput through librdkafka, the C client: produce to a new topic, then consume it.

MB/s count the records' values as the application sees them; the broker's processor time is per GB
on the wire, which is less when it is compressed. Requests are those that the client counts.
"""

from __future__ import annotations

from itertools import product

from bench.librdkafka import CHUNK_RECORDS, Load, consume, produce
from bench.processes import Process, Sample, broker, ceiling, middle
from bench.raw_client import (
    build_batch,
    ceiling_sendfile,
    ceiling_write,
    connect,
    produce_frame,
    repeat,
)
from bench.report import Row
from dohle.core.ids import TopicName

_CEILING_BYTES = 100_000_000
LOADS = [Load(*case) for case in product((100, 1024), (16_384, 1_000_000), ("none", "lz4"))]


def _ceilings(bare: Process) -> dict[str, Sample]:
    request = produce_frame(TopicName("ceiling"), build_batch(1_000, 1_000))
    load = repeat(request, _CEILING_BYTES // len(request))
    size, count, piece = load.size, load.requests, len(request)
    with connect(bare.address) as sock:
        return {
            "recv → write": bare.measure(size, count, lambda: ceiling_write(sock, load, piece)),
            "sendfile": bare.measure(size, count, lambda: ceiling_sendfile(sock, size, piece)),
        }


def rows(quick: bool) -> list[Row]:
    """Measure every load with brokers of its own, whose data goes with them: memory is reused."""
    rounds = 1 if quick else 3
    found: dict[str, list[Sample]] = {}
    payload: dict[str, int] = {}
    with ceiling() as bare:
        for load in LOADS * rounds:
            size = (10_000_000 if quick else 40_000_000) * (1 + load.record_size // 256)
            records = size // load.record_size // CHUNK_RECORDS * CHUNK_RECORDS
            payload[str(load)] = records * load.record_size
            with broker() as server:
                produced = produce(server, "load", load, records)
                found.setdefault(f"produce {load}", []).append(produced)
                consumed = consume(server, "load", records)
                found.setdefault(f"consume {load}", []).append(consumed)
            for name, sample in _ceilings(bare).items():
                found.setdefault(name, []).append(sample)
    medians = {name: middle(samples) for name, samples in found.items()}
    return [
        Row(
            action,
            f"librdkafka, {load} ({payload[str(load)] / sample.seconds / 1e6:,.0f} MB/s,"
            f" {sample.cpu_us_per_request:,.0f} µs/request)",
            "CPU s/GB",
            sample.cpu_s_per_gb,
            bare_name,
            medians[bare_name].cpu_s_per_gb,
        )
        for action, bare_name in (("produce", "recv → write"), ("consume", "sendfile"))
        for load in LOADS
        for sample in (medians[f"{action} {load}"],)
    ]
