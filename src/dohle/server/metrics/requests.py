"""Requests by kind: Kafka's ``kafka.network:type=RequestMetrics``, as jmx_exporter names it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dohle.core.errors import ErrorCode
from dohle.metrics.exposition import family, labels
from dohle.metrics.requests import RequestMetrics
from dohle.metrics.samples import QUANTILE_LABELS, quantiles
from dohle.server.metrics.sources import Sources

_NAME = "kafka_network_requestmetrics"
#: Fetches are told of by who asks, and together.
_FETCH, _KINDS_OF_FETCH = "Fetch", ("FetchConsumer", "FetchFollower")
#: The columns of a sample, in seconds.
_TIMES = (
    ("totaltimems", "The time from a request's arrival until its answer was sent, in ms."),
    ("requestqueuetimems", "The time that requests waited to be handled, in ms."),
    ("localtimems", "The time that handling requests took, in ms."),
    ("remotetimems", "The time that requests waited for something to happen, in ms."),
    ("responsesendtimems", "The time that sending answers took, in ms."),
)
_BYTES_COLUMN = len(_TIMES)


def collect_requests(sources: Sources) -> Iterator[str]:
    """Tell of the requests since the start; times are of the last samples."""
    for listener in sources.listeners:
        for connection in list(listener.connections):
            for usage in connection.times.usages.values():
                usage.count()
            yield ""
    kinds = sorted(sources.requests.by_name.values(), key=lambda kind: kind.name)
    by_label: list[tuple[str, _Kinds]] = [(kind.name, (kind,)) for kind in kinds]
    if fetches := tuple(kind for kind in kinds if kind.name in _KINDS_OF_FETCH):
        by_label.append((_FETCH, fetches))
    yield from family(
        f"{_NAME}_requests_total",
        "counter",
        "Requests by kind and version.",
        _versions(by_label),
    )
    yield from family(
        f"{_NAME}_errors_total",
        "counter",
        "Error codes in answers by kind of request; NONE counts successes.",
        _errors(by_label),
    )
    columns = []
    for label, members in by_label:
        columns.append((label, members, _columns(members)))
        yield ""
    for column, (name, doc) in enumerate(_TIMES):
        yield from _quantiles(f"{_NAME}_{name}", doc, columns, column, 1000)
    yield from _quantiles(
        f"{_NAME}_requestbytes", "The size of requests, in bytes.", columns, _BYTES_COLUMN, 1
    )


_Kinds = tuple[RequestMetrics, ...]
_Columns = list[tuple[float, ...]]


def _versions(kinds: Iterable[tuple[str, _Kinds]]) -> Iterator[tuple[str, int]]:
    for label, members in kinds:
        found: dict[int, int] = {}
        for member in members:
            for version, count in member.by_version.items():
                found[version] = found.get(version, 0) + count
        for version, count in sorted(found.items()):
            yield labels({"request": label, "version": version}), count


def _errors(kinds: Iterable[tuple[str, _Kinds]]) -> Iterator[tuple[str, int]]:
    for label, members in kinds:
        found: dict[int, int] = {}
        for member in members:
            for code, count in member.errors.items():
                found[code] = found.get(code, 0) + count
        for code, count in sorted(found.items()):
            yield labels({"request": label, "error": ErrorCode(code).name}), count


def _columns(members: _Kinds) -> _Columns:
    """Return the samples of all members, column by column."""
    found = [columns for member in members if (columns := member.samples.columns())]
    if len(found) < 2:
        return found[0] if found else []
    return [sum(parts, ()) for parts in zip(*found, strict=True)]


def _quantiles(
    name: str, doc: str, kinds: Iterable[tuple[str, _Kinds, _Columns]], column: int, factor: int
) -> Iterator[str]:
    head = f"# HELP {name} {doc}\n# TYPE {name} summary\n"
    for label, members, columns in kinds:
        if not columns:
            continue
        values = quantiles(columns[column], columns[-1])
        lines = [
            f'{name}{{request="{label}",quantile="{share}"}} {value * factor:.6g}\n'
            for share, value in zip(QUANTILE_LABELS, values, strict=True)
        ]
        count = sum(sum(member.by_version.values()) for member in members)
        yield f'{head}{"".join(lines)}{name}_count{{request="{label}"}} {count}\n'
        head = ""
