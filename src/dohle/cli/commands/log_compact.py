"""``dohle log compact --dry-run``: what cleaning would save of a partition's files.

It only reads. Real cleaning is done by a broker, whose cleaner knows what else uses the files.
"""

from __future__ import annotations

import argparse
import sys

from dohle.cli.options import Commands, add_command, add_json_option, positive

_DESCRIPTION = """\
Tell what cleaning would save of a log that no broker uses: of each key only the
last value stays (cleanup.policy=compact). The whole log is looked at as if it had
never been cleaned; the segment with the highest offsets and those with undecided
transactions stay as they are. Nothing is written.

DIR is the folder of a partition, such as data/orders-0.
"""

_EPILOG = """\
Text: a line for each group of segments that become one, then a line for all.
JSON: one object, with "groups", "untouchedSegments" and "untouchedBytes"; each
group has "baseOffsets", "bytesBefore", "bytesAfter", "recordsBefore",
"recordsAfter" and "tombstones". Transaction markers count as records. Tombstones
are among the records after: they go when delete.retention.ms has passed.

examples:
  dohle log compact --dry-run data/orders-0
  dohle log compact --dry-run --json data/__consumer_offsets-12
  dohle log compact --dry-run --segment-bytes 104857600 data/orders-0

exit codes: 0 done, 1 the folder is missing or a file in it is damaged, 2 wrong
command line
"""

_DAY_MS = 86_400_000


def add_parser(family: Commands) -> None:
    """Declare ``compact`` in the ``log`` family."""
    help = "tell what cleaning a partition's log would save"
    parser = add_command(family, "compact", help, _DESCRIPTION, _EPILOG)
    parser.add_argument("folder", metavar="DIR", help="the folder of a partition")
    parser.add_argument(
        "--dry-run", action="store_true", help="required: nothing but that is offered"
    )
    parser.add_argument(
        "--segment-bytes",
        type=positive,
        default=1 << 30,
        metavar="BYTES",
        help="the topic's segment.bytes: how large a group may be (default: 1 GiB)",
    )
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Look at the folder and tell."""
    import json
    from dataclasses import asdict

    from dohle.core.errors import KafkaError
    from dohle.core.seams import SystemClock, system_rng
    from dohle.storage.cleaning.estimate import estimate_cleaning
    from dohle.storage.cleaning.round_values import CleanerSettings, Uncleanable
    from dohle.storage.files import OsFileSystem
    from dohle.storage.segment.index import CorruptIndex

    if not args.dry_run:
        print(
            "dohle log compact only tells what would be saved, with --dry-run. The cleaning itself"
            " is done by a broker, for topics with cleanup.policy=compact.",
            file=sys.stderr,
        )
        return 2
    try:
        found = estimate_cleaning(
            OsFileSystem(),
            args.folder.rstrip("/") or "/",
            now_ms=SystemClock().now_ms(),
            segment_bytes=args.segment_bytes,
            segment_index_bytes=10 << 20,
            delete_retention_ms=_DAY_MS,
            settings=CleanerSettings(),
            secret=system_rng().randbytes(32),
        )
    except (OSError, KafkaError, CorruptIndex, Uncleanable) as error:
        print(f"{args.folder}: {error}", file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps(_camel(asdict(found))))
        return 0
    head = f"{'segments':>8} {'from offset':>20} {'bytes':>15} {'after':>15} {'saved':>6}"
    print(f"{head} {'records':>12} {'after':>12} {'tombstones':>10}")
    rows = [(str(g.base_offsets[0]), len(g.base_offsets), g) for g in found.groups]
    totals = [0] * 5
    for start, count, g in rows:
        figures = (g.bytes_before, g.bytes_after, g.records_before, g.records_after, g.tombstones)
        totals = [a + b for a, b in zip(totals, figures, strict=True)]
        print(_line(count, start, figures))
    print(_line(sum(count for _, count, _ in rows), "all", tuple(totals)))
    print(
        f"{found.untouched_segments} segments of {found.untouched_bytes:,} bytes would not be"
        " cleaned yet"
    )
    return 0


def _line(segments: int, start: str, figures: tuple[int, ...]) -> str:
    before, after, records, kept, tombstones = figures
    saved = 1 - after / before if before else 0.0
    head = f"{segments:>8} {start:>20} {before:>15,} {after:>15,} {saved:>6.1%}"
    return f"{head} {records:>12,} {kept:>12,} {tombstones:>10,}"


def _camel(value: object) -> object:
    if isinstance(value, dict):
        return {_camel_name(name): _camel(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_camel(inner) for inner in value]
    return value


def _camel_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))
