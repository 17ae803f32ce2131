"""``dohle cluster reassign``: move replicas to other brokers, by a plan.

Plans are files in the format of Kafka's kafka-reassign-partitions: what one of the two has planned,
the other may execute, verify or cancel.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING

from dohle.cli.errors import CliError, UsageError, report_note
from dohle.cli.options import (
    Commands,
    add_client_options,
    add_command,
    add_family,
    bytes_per_second,
    node_id,
    positive,
)
from dohle.cli.session import exit_code, no_such_topic, report_failures, with_admin

if TYPE_CHECKING:
    from dohle.cli.commands.reassignment_files import Plan
    from dohle.client import Admin
    from dohle.core.ids import BrokerId, TopicName, TopicPartition

_ABOUT = "Move replicas to other brokers: plan, execute, verify, cancel."
_PLAN = """\
Plan where replicas should be: balanced over all brokers and their racks, with
as few moves as possible. With --to only these brokers are used, and with
--remove some of them no more; then nothing else is moved. Brokers that are down
keep what they have, and get nothing.

The plan is shown as a table. With -o it is written to a file for `execute`, in
the format of Kafka's kafka-reassign-partitions; --json prints the same.
"""
_PLAN_EXAMPLES = """\
examples:
  dohle cluster reassign plan
  dohle cluster reassign plan --remove 3 -o plan.json
  dohle cluster reassign plan orders payments --to 4,5,6 -o plan.json
  dohle cluster reassign plan orders --replication-factor 3 -o plan.json
"""
_EXECUTE = """\
Begin what a plan says. The assignment that there is now goes to --rollback, as
a plan for the way back. With --wait the command stays until all is done, with a
bar on a terminal, and removes the throttle; otherwise `verify` does that later.
"""
_EXECUTE_EXAMPLES = """\
examples:
  dohle cluster reassign execute plan.json --throttle 50000000 --wait
  dohle cluster reassign execute plan.json --rollback back.json
  dohle cluster reassign plan --remove 3 --json | dohle cluster reassign execute -
"""
_VERIFY = """\
Tell how far a plan is executed. When nothing is reassigned any more, throttles
are removed. The exit code is 0 if all partitions are as planned, or are gone with
their topics, otherwise 1.
"""
_VERIFY_EXAMPLES = """\
examples:
  dohle cluster reassign verify plan.json
  until dohle cluster reassign verify plan.json; do sleep 10; done
"""
_CANCEL = """\
Give up reassignments that are going on, those of a plan or all: replicas that
were to be added go, and those that were to go stay. Throttles are removed.
"""
_CANCEL_EXAMPLES = """\
examples:
  dohle cluster reassign cancel plan.json
  dohle cluster reassign cancel --all
"""
_LIST = """\
List the reassignments that are going on, and how much new replicas have copied.
"""
_LIST_EXAMPLES = """\
examples:
  dohle cluster reassign list
  dohle cluster reassign list --json | jq .percent
"""


def add_parser(family: Commands) -> None:
    """Declare the commands."""
    commands = add_family(family, "reassign", "move replicas to other brokers", _ABOUT)
    _add_plan(commands)
    _add_execute(commands)

    help = "tell how far a plan is executed"
    parser = add_command(commands, "verify", help, _VERIFY, _VERIFY_EXAMPLES)
    _add_file(parser)
    parser.add_argument("--wait", action="store_true", help="wait until nothing is going on")
    _add_preserve(parser)
    add_client_options(parser)
    parser.set_defaults(run=lambda args: with_admin(args, _verify))

    parser = add_command(commands, "cancel", "give reassignments up", _CANCEL, _CANCEL_EXAMPLES)
    parser.add_argument("file", nargs="?", metavar="PLAN", help="a plan; - for stdin")
    parser.add_argument("--all", action="store_true", help="all that are going on")
    _add_preserve(parser)
    add_client_options(parser)
    parser.set_defaults(run=_run_cancel)

    help = "list the reassignments that are going on"
    parser = add_command(commands, "list", help, _LIST, _LIST_EXAMPLES)
    add_client_options(parser)
    parser.set_defaults(run=lambda args: with_admin(args, _list))


def _add_plan(commands: Commands) -> None:
    help = "plan where replicas should be"
    parser = add_command(commands, "plan", help, _PLAN, _PLAN_EXAMPLES)
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="by default all topics")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--to", type=_ids, metavar="ID,ID", help="use these brokers only")
    where.add_argument("--remove", type=_ids, metavar="ID,ID", help="free these brokers")
    parser.add_argument(
        "--replication-factor", type=positive, metavar="N", help="how many replicas to have"
    )
    parser.add_argument(
        "--disable-rack-aware", action="store_true", help="do not look at the brokers' racks"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write the plan to a new file")
    add_client_options(parser)
    parser.set_defaults(run=lambda args: with_admin(args, _plan))


def _add_execute(commands: Commands) -> None:
    parser = add_command(commands, "execute", "begin a plan", _EXECUTE, _EXECUTE_EXAMPLES)
    _add_file(parser)
    parser.add_argument(
        "--throttle",
        type=bytes_per_second,
        metavar="BYTES",
        help="copy no more than this in a second (50000000, 50MB), to and from each broker",
    )
    parser.add_argument("--wait", action="store_true", help="wait until all is done")
    parser.add_argument(
        "--additional", action="store_true", help="although other reassignments are going on"
    )
    parser.add_argument(
        "--disallow-replication-factor-change",
        action="store_true",
        help="refuse a plan that has more or fewer replicas of a partition",
    )
    parser.add_argument(
        "--rollback", metavar="FILE", help="write the present assignment to a new file"
    )
    _add_preserve(parser)
    add_client_options(parser)
    parser.set_defaults(run=lambda args: with_admin(args, _execute))


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="PLAN", help="a file with a plan; - for stdin")


def _add_preserve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--preserve-throttles", action="store_true", help="do not remove any throttle"
    )


def _ids(text: str) -> list[int]:
    return [node_id(each) for each in text.split(",")]


# Planning


async def _plan(args: argparse.Namespace, admin: Admin) -> int:
    from dohle.cli.commands.reassignment_files import plan_as_json, write_plan
    from dohle.cli.output import print_json
    from dohle.client.admin.replica_plan import plan_replicas

    current = await _current(admin, args.topics or None)
    used = {broker for replicas in current.values() for broker in replicas}
    up, down = await _brokers(args, admin, used)
    if used & down.keys():
        ids = ", ".join(map(str, sorted(used & down.keys())))
        report_note(f"brokers that are down keep their replicas, and get no others: {ids}")
    try:
        planned = plan_replicas(
            current,
            up,
            down=down,
            replication_factor=args.replication_factor,
            balance=args.remove is None,
        )
    except ValueError as error:
        raise CliError(f"{error}: {_who_may_have(up, down)}") from None
    changed = {key: replicas for key, replicas in planned.items() if replicas != current[key]}
    if args.output and changed:
        write_plan(args.output, changed)
    if args.json:
        print_json(plan_as_json(changed))
        return 0
    rows = [
        {
            "topic": key.topic,
            "partition": key.partition,
            "replicas": current[key],
            "planned": replicas,
            "adding": _without(replicas, current[key]),
            "removing": _without(current[key], replicas),
        }
        for key, replicas in sorted(changed.items())
    ]
    _show(args, rows, if_empty=_nothing_to_move(args))
    return 0


def _nothing_to_move(args: argparse.Namespace) -> str:
    nothing = "nothing is to be moved"
    return f"{nothing}: {args.output} is not written" if args.output else nothing


def _who_may_have(up: Iterable[int], down: Iterable[int]) -> str:
    """Tell the brokers that may have replicas, as the end of a sentence."""
    ids = sorted(up)
    text = f"{len(ids)} may be used ({', '.join(map(str, ids))})" if ids else "none may be used"
    gone = ", ".join(map(str, sorted(down)))
    return f"{text}, and down are {gone}" if gone else text


async def _brokers(
    args: argparse.Namespace, admin: Admin, used: Set[int]
) -> tuple[dict[int, str | None], dict[int, str | None]]:
    """Return the brokers that may have replicas, with their racks: those up, and those down."""
    described = await admin.describe_cluster(include_fenced=True)
    known = used | {one.node_id for one in described.brokers}
    for broker in args.remove or ():
        if broker not in known:
            raise CliError(f"broker {broker} is not in the cluster, and has no replicas")
    up: dict[int, str | None] = {}
    down: dict[int, str | None] = {}
    for one in described.brokers:
        if one.node_id in (args.remove or ()) or (args.to and one.node_id not in args.to):
            continue
        of_kind = down if one.is_fenced else up
        of_kind[one.node_id] = None if args.disable_rack_aware else one.rack
    for broker in args.to or ():
        if broker not in up:
            raise CliError(f"broker {broker} is not in the cluster, or is down")
    return up, down


async def _current(
    admin: Admin, topics: Sequence[str] | None, *, may_be_gone: bool = False
) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """Return where partitions are, or will be once their reassignments are complete."""
    from dohle.core.errors import ErrorCode
    from dohle.core.ids import TopicPartition

    if topics is None:
        described = await admin.list_topics()
    else:
        results = await admin.describe_topics(topics)
        for name, error in results.errors.items():
            unknown = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if unknown and may_be_gone:
                continue
            raise CliError(no_such_topic(name)) if unknown else error
        described = results.done
    ongoing = await admin.list_partition_reassignments()
    found = {}
    for name, topic in described.items():
        for index, partition in topic.partitions.items():
            key = TopicPartition(name, index)
            leaving = ongoing[key].removing if key in ongoing else ()
            found[key] = tuple(each for each in partition.replicas if each not in leaving)
    return found


# Doing it


async def _execute(args: argparse.Namespace, admin: Admin) -> int:
    from dohle.cli.commands.reassignment_files import Plan, read_plan, write_plan
    from dohle.cli.commands.reassignment_places import place_replicas
    from dohle.cli.commands.reassignment_throttles import set_throttles

    plan = read_plan(args.file)
    planned = plan.replicas
    ongoing = await admin.list_partition_reassignments()
    if ongoing and not args.additional:
        raise CliError(
            f"{len(ongoing)} partitions are being reassigned; pass --additional to begin more, "
            "or see `dohle cluster reassign list`"
        )
    current = await _current_of(admin, planned)
    if args.rollback:
        write_plan(args.rollback, current)
    if args.throttle is not None:
        await set_throttles(admin, current, planned, ongoing, args.throttle)
    # A broker that does not have a replica yet is told where to make it.
    await place_replicas(admin, plan.places)
    results = await admin.alter_partition_reassignments(
        planned, allow_replication_factor_change=not args.disallow_replication_factor_change
    )
    begun = report_failures(results)
    if args.wait and begun:
        wanted = Plan({key: planned[key] for key in begun}, plan.places)
        return await _verify_plan(args, admin, wanted, exit_code(results))
    rows = [
        {
            "topic": key.topic,
            "partition": key.partition,
            "replicas": current[key],
            "planned": planned[key],
        }
        for key in sorted(begun)
    ]
    _show(args, rows, if_empty="nothing was begun")
    if args.throttle is not None and begun:
        report_note(f"`dohle cluster reassign verify {args.file}` removes the throttle at the end")
    return exit_code(results)


async def _current_of(
    admin: Admin, planned: Mapping[TopicPartition, object]
) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    found = await _current(admin, sorted({key.topic for key in planned}))
    for key in planned:
        if key not in found:
            raise CliError(f"there is no partition {key}")
    return {key: found[key] for key in planned}


async def _left_of(
    admin: Admin, planned: Mapping[TopicPartition, object]
) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """Do the same, but leave out what was deleted since it was planned."""
    found = await _current(admin, sorted({key.topic for key in planned}), may_be_gone=True)
    return {key: found[key] for key in planned if key in found}


async def _verify(args: argparse.Namespace, admin: Admin) -> int:
    from dohle.cli.commands.reassignment_files import read_plan

    return await _verify_plan(args, admin, read_plan(args.file), 0)


async def _verify_plan(
    args: argparse.Namespace,
    admin: Admin,
    plan: Plan,
    code: int,
) -> int:
    """Tell how far a plan is, and clean up behind it; 1 if it is not carried out, else ``code``."""
    from dohle.cli.commands.reassignment_places import await_places, misplaced
    from dohle.cli.commands.reassignment_progress import await_end, copied, look_again

    planned = plan.replicas
    if args.wait:
        await await_end(admin, planned)
        await await_places(admin, plan.places)
    elsewhere = {replica.partition for replica in await misplaced(admin, plan.places)}
    ongoing = await admin.list_partition_reassignments(planned)
    current = await _left_of(admin, planned)
    if not ongoing and current != planned:
        # A broker hears of the end after the controller.
        current = await look_again(lambda: _left_of(admin, planned), planned)
    progress = await copied(admin, ongoing)
    rows = []
    for key in sorted(planned):
        state, percent = "completed", None
        if key not in current:
            state = "gone"
        elif current[key] != planned[key]:
            state = "not as planned"
        elif key in elsewhere:
            state = "other directory"
        if key in ongoing and key in current:
            state, percent = "in progress", progress[key].percent
        rows.append(
            {
                "topic": key.topic,
                "partition": key.partition,
                "replicas": current.get(key),
                "planned": planned[key],
                "state": state,
                "percent": percent,
            }
        )
    _show(args, rows, if_empty="")
    if not args.preserve_throttles:
        await _clean_up(admin, [key.topic for key in planned])
    return code if all(row["state"] in ("completed", "gone") for row in rows) else 1


async def _clean_up(admin: Admin, topics: Sequence[TopicName]) -> None:
    """Remove throttles, unless something is still being moved, perhaps by another plan."""
    from dohle.cli.commands.reassignment_throttles import remove_throttles

    if not await admin.list_partition_reassignments():
        await remove_throttles(admin, topics)


def _run_cancel(args: argparse.Namespace) -> int:
    if args.all == bool(args.file):
        raise UsageError("name the plan whose reassignments are to be given up, or pass --all")
    return with_admin(args, _cancel)


async def _cancel(args: argparse.Namespace, admin: Admin) -> int:
    from dohle.cli.commands.reassignment_files import read_plan

    planned = None if args.all else read_plan(args.file).replicas
    ongoing = await admin.list_partition_reassignments(planned)
    results = await admin.alter_partition_reassignments(dict.fromkeys(ongoing))
    rows = [
        {"topic": key.topic, "partition": key.partition, "result": "cancelled"}
        for key in sorted(report_failures(results))
    ]
    _show(args, rows, if_empty="nothing was going on")
    if not args.preserve_throttles:
        await _clean_up(admin, [key.topic for key in planned or ongoing])
    return exit_code(results)


async def _list(args: argparse.Namespace, admin: Admin) -> int:
    from dohle.cli.commands.reassignment_progress import copied

    ongoing = await admin.list_partition_reassignments()
    progress = await copied(admin, ongoing)
    rows = [
        {
            "topic": key.topic,
            "partition": key.partition,
            "replicas": one.replicas,
            "adding": one.adding,
            "removing": one.removing,
            "copied": progress[key].done,
            "size": progress[key].total,
            "percent": progress[key].percent,
        }
        for key, one in sorted(ongoing.items())
    ]
    _show(args, rows, if_empty="nothing is being reassigned")
    return 0


def _without(brokers: Sequence[int], others: Sequence[int]) -> tuple[int, ...]:
    return tuple(broker for broker in brokers if broker not in others)


def _show(args: argparse.Namespace, rows: Sequence[Mapping[str, object]], *, if_empty: str) -> None:
    """Print rows; lists of brokers are text for people, who are told if there is nothing."""
    from dohle.cli.output import print_rows

    if not rows and not args.json:
        report_note(if_empty)
        return
    if not args.json:
        rows = [
            {
                name: ",".join(map(str, value)) if isinstance(value, tuple) else value
                for name, value in row.items()
            }
            for row in rows
        ]
    print_rows(rows, as_json=args.json, if_empty="")
