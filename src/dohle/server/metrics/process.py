"""The process and its loop, by the names that Prometheus' own clients use."""

from __future__ import annotations

from collections.abc import Iterator

from dohle import __version__
from dohle.metrics.exposition import family, labels, single
from dohle.metrics.summary import summary
from dohle.server.metrics.log_counts import LogCounts
from dohle.server.metrics.sources import Sources


def collect_process(sources: Sources, logged: LogCounts) -> Iterator[str]:
    """Tell what the process uses, and how late its loop is."""
    yield from family(
        "dohle_build_info",
        "gauge",
        "The version of this node, and where it belongs.",
        [
            (
                labels(
                    {
                        "version": __version__,
                        "node_id": sources.node_id,
                        "cluster_id": sources.cluster_id,
                    }
                ),
                1,
            )
        ],
    )
    yield from _loop(sources)
    yield from family(
        "dohle_log_messages_total",
        "counter",
        "Lines logged, by level.",
        [(labels({"level": level}), count) for level, count in logged.by_level.items()],
    )
    usage = sources.usage
    if usage is None:
        return
    yield from single(
        "process_cpu_seconds_total", "counter", "CPU time used, in seconds.", usage.cpu_seconds
    )
    for name, doc, value in (
        ("process_resident_memory_bytes", "Resident memory.", usage.resident_bytes),
        ("process_virtual_memory_bytes", "Virtual memory.", usage.virtual_bytes),
        ("process_open_fds", "Open files and sockets.", usage.open_files),
        ("process_max_fds", "How many files and sockets may be open.", usage.open_files_max),
        ("process_start_time_seconds", "When the process began.", usage.start_time_seconds),
    ):
        yield from single(name, "gauge", doc, value)
    for name, doc, index in (
        ("python_gc_collections_total", "Collections of garbage.", 0),
        ("python_gc_objects_collected_total", "Objects collected.", 1),
        ("python_gc_objects_uncollectable_total", "Objects that could not be collected.", 2),
    ):
        yield from family(
            name,
            "counter",
            doc,
            [
                (labels({"generation": generation}), told[index])
                for generation, told in enumerate(usage.garbage)
            ],
        )


def _loop(sources: Sources) -> Iterator[str]:
    probe = sources.probe
    idle = probe.idle_share()
    for name, doc in (
        (
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
            "The share of the last minute in which the loop had nothing to do: 1 is idle.",
        ),
        (
            "kafka_network_socketserver_networkprocessoravgidle_percent",
            "The same: network and handlers are one loop.",
        ),
    ):
        yield from single(name, "gauge", doc, idle)
    if columns := probe.delays.columns():
        delays = list(columns[0])
        yield summary(
            "dohle_event_loop_delay_seconds",
            "How long what arrives waits for what is being done.",
            delays,
            probe.tick_count,
        )
        yield from single(
            "dohle_event_loop_delay_max_seconds",
            "gauge",
            "The longest of the last delays: of about 100 s.",
            max(delays),
        )
