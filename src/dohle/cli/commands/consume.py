"""``dohle consume``: print the records of topics, starting anywhere.

Partitions are assigned manually, or by a group. Output is raw bytes: the contents of a record reach
the pipe unchanged.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dohle.cli.commands.record_filter import Wanted, condition, pattern, record_filter
from dohle.cli.errors import CliError, UsageError
from dohle.cli.options import Commands, add_client_options, add_command, escaped, natural, positive
from dohle.cli.session import find_partitions, with_cluster
from dohle.cli.times import parse_time

if TYPE_CHECKING:
    from dohle.client import Cluster, ConsumedRecord, Consumer, Start
    from dohle.core.ids import TopicPartition

_DESCRIPTION = """\
Print the records of topics. Without -o reading starts at the first available
record; without -e, -c or -o e@... it continues until Ctrl-C.

With --group the topics are shared with the other members of the group, reading
starts at the committed offsets, and what was printed is committed. -o beginning
(the default) or -o end then says where to start in partitions without a committed
offset, and -e stops when all assigned partitions have been read.

Where to start and to stop (-o, once for each):
  beginning, end   the first record; after the last one
  OFFSET           this offset of each partition
  -N               N records before the end of each partition
  @TIME, s@TIME    the first record at or after this time
  e@TIME           stop before the first record at or after this time
TIME is a date (2026-01-31T08:00, UTC unless it has a zone), a while ago (-90s,
-30m, -1h, -2d), now, or milliseconds since 1970.
"""
_EPILOG = """\
Formats (-f), as in kcat:
  %t topic    %p partition    %o offset    %T timestamp in ms
  %k key      %K its length   %s value     %S its length   %R as 4 bytes
  %h headers as name=value,name=value      %% a percent sign
  \\n \\r \\t \\\\ \\xFF               A length of -1 means null.

JSON: one object per record. Keys, values and headers are {"utf8": "..."} or, if
they are not UTF-8, {"base64": "..."}, or null.

examples:
  dohle consume orders
  dohle consume orders -e -o -10
  dohle consume orders -p 0 -o 1000 -c 5 -f '%p:%o %k=%s\\n'
  dohle consume orders --group billing
  dohle consume orders payments -o @-1h
  dohle consume --regex 'shop-.*' -e -f '%t %s\\n'
  dohle consume orders -e --grep coffee --where customer.name=ann --pretty
  dohle consume orders -e -o @2026-01-31T08:00 -o e@2026-01-31T09:00 --json
"""
_LEVELS = ("read_committed", "read_uncommitted")
_NEAR, _FAR = "s@", "e@"
_POLL_MS = 200
_POLL_RECORDS = 500


class OffsetArgument(NamedTuple):
    """One ``-o``: a position to start at, or (``is_stop``) a time to stop at."""

    kind: str
    number: int = 0

    @property
    def is_stop(self) -> bool:
        """Whether it is a position to stop at."""
        return self.kind == _FAR


def add_parser(commands: Commands) -> None:
    """Declare the command."""
    parser = add_command(commands, "consume", "print the records of topics", _DESCRIPTION, _EPILOG)
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    parser.add_argument(
        "-r",
        "--regex",
        action="store_true",
        help="TOPIC is a regular expression for whole names; may be several",
    )
    parser.add_argument(
        "-o",
        "--offset",
        type=parse_place,
        action="append",
        default=[],
        metavar="PLACE",
        help="where to start or stop, see above (default: beginning)",
    )
    parser.add_argument(
        "-p",
        "--partition",
        type=natural,
        action="append",
        metavar="N",
        help="only this partition; may be repeated",
    )
    parser.add_argument(
        "-G",
        "--group",
        metavar="GROUP",
        help="read as a member of this group, and commit what was printed",
    )
    parser.add_argument("-c", "--count", type=positive, metavar="N", help="stop after N records")
    parser.add_argument(
        "-e", "--exit", action="store_true", help="stop at the current end of the partitions"
    )
    parser.add_argument(
        "--grep",
        type=pattern,
        action="append",
        default=[],
        metavar="REGEX",
        help="only records whose key or value has a match; may be repeated, then all must match",
    )
    parser.add_argument(
        "--where",
        type=condition,
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="only records whose value is JSON with this field (a.b: b in a); may be repeated",
    )
    parser.add_argument(
        "--pretty",
        action="store_true",
        help="print JSON for people: over several lines, values that are JSON as such",
    )
    parser.add_argument(
        "-f",
        "--format",
        metavar="FORMAT",
        help="the output format of a record, see below (default: %%s\\n)",
    )
    parser.add_argument(
        "-K",
        "-k",
        "--key-separator",
        type=escaped,
        metavar="SEP",
        help="also print the key, and SEP between key and value",
    )
    parser.add_argument(
        "-Z", "--null", action="store_true", help="print NULL for a null key or value"
    )
    parser.add_argument(
        "--isolation-level",
        choices=_LEVELS,
        default=_LEVELS[1],
        help=(
            f"whether records of open and aborted transactions are printed (default: {_LEVELS[1]})"
        ),
    )
    add_client_options(parser)
    parser.set_defaults(run=run)


def parse_place(text: str) -> OffsetArgument:
    """Parse the value of ``-o``."""
    if text in ("beginning", "end"):
        return OffsetArgument(text)
    if text.startswith(("@", _NEAR, _FAR)):
        mark, _, when = text.partition("@")
        try:
            return OffsetArgument(_FAR if mark == "e" else _NEAR, parse_time(when))
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    kind, digits = "at", text
    if text.startswith("-"):
        kind, digits = "tail", text[1:]
    if digits.isascii() and digits.isdigit() and int(digits) < 1 << 63:
        return OffsetArgument(kind, int(digits))
    raise argparse.ArgumentTypeError(
        f"{text!r} is not a position: use beginning, end, OFFSET, -N, @TIME or e@TIME"
    )


def run(args: argparse.Namespace) -> int:
    """Read and print."""
    begin, stop_ms = _places(args)
    show = _shower(args)
    if args.group is not None:
        return with_cluster(args, lambda cluster: _consume_group(cluster, args, begin, show))

    async def work(cluster: Cluster) -> int:
        from dohle.client import Consumer, ConsumerConfig, IsolationLevel, OffsetReset
        from dohle.client.admin.topics import TopicAdmin

        partitions = [
            each
            for topic in await _names(cluster, args)
            for each in await find_partitions(TopicAdmin(cluster), topic, args.partition)
        ]
        stops = await _stops(cluster, partitions, stop_ms)
        config = ConsumerConfig(
            isolation_level=IsolationLevel[args.isolation_level.upper()],
            # A requested offset that does not exist is an error; one that retention deleted
            # meanwhile is not.
            auto_offset_reset=OffsetReset.NONE if begin.kind == "at" else OffsetReset.EARLIEST,
        )
        async with Consumer(cluster, config) as consumer:
            await consumer.assign(
                dict.fromkeys(partitions, _start(begin)),
                stop_at_end=args.exit or stop_ms is not None,
            )
            await _print_all(consumer, show, stops, args)
        return 0

    return with_cluster(args, work)


def _places(args: argparse.Namespace) -> tuple[OffsetArgument, int | None]:
    """Return where to start and, if given, the time to stop at."""
    begins = [place for place in args.offset if not place.is_stop]
    stops = [place.number for place in args.offset if place.is_stop]
    if len(begins) > 1 or len(stops) > 1:
        raise UsageError("give -o once for the start and once (e@...) for the end")
    begin = begins[0] if begins else OffsetArgument("beginning")
    if args.group is not None:
        if args.group == "":
            raise UsageError("--group is empty: give it a name")
        if args.partition is not None:
            raise UsageError("the group assigns the partitions: use either -p or --group")
        if stops or begin.kind not in ("beginning", "end"):
            raise UsageError(
                "with --group, -o can only be beginning or end, for partitions without a "
                "committed offset; use `dohle group reset-offsets` to move the group"
            )
    return begin, stops[0] if stops else None


async def _consume_group(
    cluster: Cluster,
    args: argparse.Namespace,
    begin: OffsetArgument,
    show: Callable[[ConsumedRecord], bytes],
) -> int:
    import asyncio

    from dohle.client import Consumer, ConsumerConfig, IsolationLevel, OffsetReset
    from dohle.client.admin.topics import TopicAdmin

    if not args.regex:
        for topic in args.topics:
            await find_partitions(TopicAdmin(cluster), topic, None)
    wanted = _one_pattern(args.topics) if args.regex else args.topics
    config = ConsumerConfig(
        group_id=args.group,
        isolation_level=IsolationLevel[args.isolation_level.upper()],
        auto_offset_reset=OffsetReset.LATEST if begin.kind == "end" else OffsetReset.EARLIEST,
    )
    async with Consumer(cluster, config) as consumer:
        await consumer.subscribe(wanted, stop_at_end=args.exit)
        try:
            await _print_all(consumer, show, {}, args)
        except asyncio.CancelledError:
            # Ctrl-C: everything that was read has been printed, so it is committed.
            await consumer.close(commit=True)
            raise
    return 0


def _one_pattern(patterns: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern that matches what any of these does."""
    try:
        for each in patterns:
            re.compile(each)
    except re.error as error:
        raise UsageError(f"{each!r} is not a regular expression: {error}") from None
    return re.compile("|".join(f"(?:{each})" for each in patterns))


async def _names(cluster: Cluster, args: argparse.Namespace) -> Sequence[str]:
    """Return the topics to read; of a pattern only those that are there now, and not internal."""
    from dohle.client.admin.topics import TopicAdmin

    if not args.regex:
        return list(dict.fromkeys(args.topics))
    pattern = _one_pattern(args.topics)
    topics = await TopicAdmin(cluster).list_topics()
    found = sorted(
        name for name, topic in topics.items() if not topic.is_internal and pattern.fullmatch(name)
    )
    if not found:
        raise CliError(f"no topic matches {' or '.join(args.topics)}; `dohle topic list` shows all")
    return found


def _start(place: OffsetArgument) -> Start:
    from dohle.client import At, Beginning, End, Since, Tail

    match place.kind:
        case "beginning":
            return Beginning()
        case "end":
            return End()
        case "tail":
            return Tail(place.number)
        case "at":
            return At(place.number)
    return Since(place.number)


def _shower(args: argparse.Namespace) -> Callable[[ConsumedRecord], bytes]:
    """Return the function that turns a record into output."""
    from dohle.cli.commands.record_format import compile_format, to_fields

    if args.json or args.pretty:
        if args.format is not None or args.key_separator is not None:
            raise UsageError("JSON has its own format: do not combine it with -f or -K")
        from dohle.cli.output import json_line

        if args.pretty:
            from dohle.cli.commands.record_format import pretty

            return pretty
        return lambda item: json_line(to_fields(item)).encode()
    null = b"NULL" if args.null else b""
    if args.format is not None:
        if args.key_separator is not None:
            raise UsageError("-f already says how to print keys: do not combine it with -K")
        try:
            return compile_format(args.format, null=null)
        except ValueError as error:
            raise UsageError(f"-f {args.format}: {error}") from None
    whole_line = compile_format("%s\\n", null=null)
    separator: bytes | None = args.key_separator
    if separator is None:
        return whole_line
    key = compile_format("%k", null=null)
    return lambda item: key(item) + separator + whole_line(item)


async def _stops(
    cluster: Cluster, partitions: list[TopicPartition], stop_ms: int | None
) -> dict[TopicPartition, int]:
    """Return the offsets to stop at; partitions without one are read to their end."""
    from dohle.client import Since
    from dohle.client.admin.topics import TopicAdmin

    if stop_ms is None:
        return {}
    found = await TopicAdmin(cluster).list_offsets(dict.fromkeys(partitions, Since(stop_ms)))
    return {partition: place.offset for partition, place in found.ok().items() if place.offset >= 0}


async def _print_all(
    consumer: Consumer,
    show: Callable[[ConsumedRecord], bytes],
    stops: dict[TopicPartition, int],
    args: argparse.Namespace,
) -> None:
    from dohle.cli.progress import Progress
    from dohle.core.ids import TopicPartition

    is_terminal = sys.stdout.isatty()
    progress = Progress(is_shown=not is_terminal)
    output = sys.stdout.buffer
    is_wanted: Wanted | None = record_filter(args.grep, args.where)
    left = sys.maxsize if args.count is None else args.count
    while left and not _is_done(consumer, stops):
        # What is read is committed: with a group no more than may be printed.
        is_bounded = is_wanted is None or args.group is not None
        records_max = min(left, _POLL_RECORDS) if is_bounded else _POLL_RECORDS
        items = await consumer.poll(timeout_ms=_POLL_MS, max_records=records_max)
        if stops:
            ends = {one: stops.get(one, sys.maxsize) for one in consumer.assignment}
            items = [
                item
                for item in items
                if item.record.offset < ends[TopicPartition(item.topic, item.partition)]
            ]
        if is_wanted is not None:
            items = list(filter(is_wanted, items))[:left]
        shown = b"".join([show(item) for item in items])
        left -= len(items)
        if is_terminal:
            shown = _harmless(shown)
        output.write(shown)
        output.flush()
        progress.add(len(items), len(shown))
    progress.end()


def _harmless(shown: bytes) -> bytes:
    r"""Write as ``\x1b`` what a terminal would obey, or what is not UTF-8; files get every byte."""
    from dohle.core.texts import printable

    lines = shown.decode(errors="backslashreplace").split("\n")
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in lines).encode()


def _is_done(consumer: Consumer, stops: dict[TopicPartition, int]) -> bool:
    if not stops:
        return consumer.is_done
    return consumer.is_done or all(
        one in stops and consumer.position(one) >= stops[one] for one in consumer.assignment
    )
