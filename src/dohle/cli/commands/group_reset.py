"""``dohle group reset-offsets``: move the committed offsets of a group.

Nothing is changed without ``--execute``. Only a group without members can be reset: members
continue from their own positions, and commit those.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dohle.cli.errors import CliError, UsageError, report_note, report_warning
from dohle.cli.options import (
    Commands,
    add_client_options,
    add_command,
    integer,
    offset,
    topic_partitions,
)
from dohle.cli.session import exit_code, find_partitions, report_failures, with_admin

if TYPE_CHECKING:
    from dohle.client import Admin
    from dohle.client.consumer.starts import EndStart
    from dohle.core.ids import TopicPartition

_RESET = """\
Move the committed offsets of a group. Without --execute the command only shows
what would change. A group that has members is refused: stop its consumers first.

Offsets outside the log are moved to its start or end.
"""
_EXAMPLES = """\
examples:
  dohle group reset-offsets billing --all-topics --to-earliest
  dohle group reset-offsets billing --topic orders:0,2 --to-offset 1000 --execute
  dohle group reset-offsets billing --topic orders --to-datetime 2026-01-31T08:00:00Z
  dohle group reset-offsets billing --all-topics --shift-by -100 --execute
"""
#: Groups in these states have no members.
_WITHOUT_MEMBERS = ("Empty", "Dead")


def add_reset_offsets(family: Commands) -> None:
    """Declare the command."""
    help = "move the committed offsets of a group"
    parser = add_command(family, "reset-offsets", help, _RESET, _EXAMPLES)
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument(
        "--topic",
        type=topic_partitions,
        action="append",
        metavar="TOPIC[:P,P]",
        help="a topic, or some of its partitions; may be repeated",
    )
    parser.add_argument(
        "--all-topics", action="store_true", help="all topics for which the group has offsets"
    )
    places = parser.add_mutually_exclusive_group(required=True)
    places.add_argument("--to-earliest", action="store_true", help="the first available record")
    places.add_argument("--to-latest", action="store_true", help="after the last record")
    places.add_argument("--to-offset", type=offset, metavar="N", help="this offset")
    places.add_argument(
        "--to-datetime",
        type=timestamp_ms,
        metavar="TIME",
        help="the first record at or after this time, such as 2026-01-31T08:00:00+01:00 (UTC if "
        "no zone is given)",
    )
    places.add_argument(
        "--shift-by", type=integer, metavar="N", help="forward by N, or back if negative"
    )
    parser.add_argument(
        "--execute", action="store_true", help=("apply the change instead of only showing it")
    )
    add_client_options(parser)
    parser.set_defaults(run=_run)


def timestamp_ms(text: str) -> int:
    """Parse a date and time into milliseconds since 1970."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time: write it like 2026-01-31T08:00:00Z or "
            "2026-01-31T08:00:00.5+01:00"
        ) from None
    since_1970 = int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
    if since_1970 < 0:
        raise argparse.ArgumentTypeError(f"{text} is before 1970")
    return since_1970


def _run(args: argparse.Namespace) -> int:
    if bool(args.topic) == args.all_topics:
        raise UsageError("say what to reset: --topic TOPIC[:P,P], or --all-topics")
    return with_admin(args, reset_offsets)


async def reset_offsets(args: argparse.Namespace, admin: Admin) -> int:
    """Show the change, or apply it."""
    from dohle.cli.output import print_json, print_table
    from dohle.client import OffsetAndMetadata, Results

    await _refuse_members(args.group, admin)
    current = {
        each: place.offset
        for each, place in (await admin.list_group_offsets(args.group)).ok().items()
    }
    if args.all_topics:
        partitions = sorted(current)
    else:
        found = [await find_partitions(admin, *each) for each in args.topic]
        partitions = sorted({each for some in found for each in some})
    if not partitions:
        raise CliError(
            f"group {args.group} has no committed offsets; name topics with --topic to set some"
        )
    new = await _new_offsets(args, admin, partitions, current)
    results: Results[TopicPartition, None] = Results(dict.fromkeys(new))
    if args.execute:
        changes = {each: OffsetAndMetadata(offset) for each, offset in new.items()}
        results = await admin.alter_group_offsets(args.group, changes)
    rows: list[dict[str, object]] = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "currentOffset": current.get(each),
            "newOffset": new[each],
        }
        for each in partitions
        if each in results.done
    ]
    if args.json:
        for row in rows:
            print_json({"groupId": args.group, **row, "isExecuted": args.execute})
    else:
        print_table(rows, if_empty="nothing to reset")
    if not args.execute:
        report_note("this was a dry run, nothing has changed; add --execute to apply it")
    report_failures(results)
    return exit_code(results)


async def _refuse_members(group_id: str, admin: Admin) -> None:
    """Report early, and without --execute too, what the coordinator would refuse."""
    from dohle.core.errors import ErrorCode

    results = await admin.describe_groups([group_id])
    for error in results.errors.values():
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise error
    for group in results.done.values():
        if group.state not in _WITHOUT_MEMBERS:
            raise CliError(
                f"group {group_id} has members (state {group.state}), which would not notice the "
                "change: stop its consumers first"
            )


async def _new_offsets(
    args: argparse.Namespace,
    admin: Admin,
    partitions: list[TopicPartition],
    current: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    from dohle.client import Beginning, End, Since

    async def look_up(start: EndStart) -> dict[TopicPartition, int]:
        found = (await admin.list_offsets(dict.fromkeys(partitions, start))).ok()
        return {each: place.offset for each, place in found.items()}

    starts, ends = await look_up(Beginning()), await look_up(End())
    if args.to_earliest:
        return starts
    if args.to_latest:
        return ends
    if args.to_datetime is not None:
        found = await look_up(Since(args.to_datetime))
        return {each: ends[each] if found[each] < 0 else found[each] for each in partitions}
    new = {}
    for each in partitions:
        if args.shift_by is None:
            wanted = args.to_offset
        elif each in current:
            wanted = current[each] + args.shift_by
        else:
            raise CliError(f"group {args.group} has no offset for {each} to shift")
        new[each] = min(max(wanted, starts[each]), ends[each])
        if new[each] != wanted:
            report_warning(
                f"{each}: offset {wanted} is not between {starts[each]} and {ends[each]}: using "
                f"{new[each]}"
            )
    return new
