"""``dohle txn``: list, describe and abort transactions, and show a partition's producers."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dohle.cli import admin_parts
from dohle.cli.errors import CliError, UsageError, report_error
from dohle.cli.options import (
    Commands,
    add_client_options,
    add_command,
    add_family,
    natural,
    offset,
    topic_partitions,
)
from dohle.cli.session import (
    describe_kafka_error,
    exit_code,
    find_partitions,
    report_failures,
    with_admin,
    with_part,
)

if TYPE_CHECKING:
    from dohle.client import Admin, ProducerDescription, TransactionDescription
    from dohle.client.admin.transactions import TransactionAdmin
    from dohle.core.errors import KafkaError

_LIST_EXAMPLES = """\
examples:
  dohle txn list
  dohle txn list --state Ongoing --running-longer-than 60000
  dohle txn list --pattern 'billing-.*' --json | jq -r .transactionalId
"""
_DESCRIBE = """\
Show transactional ids: the producer, the state and, if a transaction is open,
when it started and which partitions it has written to. A two-phase transaction has no
timeout: it stays open until somebody commits or aborts it.
"""
_DESCRIBE_EXAMPLES = """\
examples:
  dohle txn describe billing-1
  dohle txn describe billing-1 billing-2 --json | jq .partitions
"""
_PRODUCERS = """\
Show the producers that the leaders of partitions know. One with a start offset
has an open transaction there, which consumers with read_committed wait for.
"""
_PRODUCERS_EXAMPLES = """\
examples:
  dohle txn producers orders
  dohle txn producers orders:0,2 --json | jq 'select(.currentTxnStartOffset >= 0)'
"""
_ABORT = """\
Abort an open transaction.

By its transactional id: the coordinator aborts it, and the producer that uses the
id is fenced. By a partition and the offset at which it started (`dohle txn
producers` shows it): an abort marker is written to this partition, bypassing the
coordinator. That is for a hanging transaction, which the coordinator has
forgotten; aborting a live one this way loses records.
"""
_ABORT_EXAMPLES = """\
examples:
  dohle txn abort billing-1
  dohle txn abort --partition orders:0 --start-offset 1042
"""


#: The coordinator remembers the start time of a transaction even after its end.
_OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")


def add_parser(commands: Commands) -> None:
    """Declare the ``txn`` family."""
    family = add_family(commands, "txn", "list, describe and abort transactions")
    text = "List all transactional ids, with the state of each."
    parser = add_command(family, "list", "list transactional ids", text, _LIST_EXAMPLES)
    parser.add_argument(
        "--state",
        action="append",
        default=[],
        metavar="STATE",
        help="only those in this state (Ongoing, CompleteCommit, ...)",
    )
    parser.add_argument(
        "--producer-id",
        type=offset,
        action="append",
        default=[],
        metavar="N",
        help="only those of this producer",
    )
    parser.add_argument(
        "--running-longer-than",
        type=natural,
        metavar="MS",
        help="only those with a transaction that has been open for longer than this",
    )
    parser.add_argument(
        "--pattern", metavar="REGEX", help="only ids that match this regular expression"
    )
    add_client_options(parser)
    parser.set_defaults(
        run=lambda args: with_part(args, admin_parts.transactions, list_transactions)
    )
    help = "show producers, states and partitions"
    parser = add_command(family, "describe", help, _DESCRIBE, _DESCRIBE_EXAMPLES)
    parser.add_argument("ids", nargs="+", metavar="ID", help="a transactional id")
    add_client_options(parser)
    parser.set_defaults(
        run=lambda args: with_part(args, admin_parts.transactions, describe_transactions)
    )
    help = "show the producers of partitions"
    parser = add_command(family, "producers", help, _PRODUCERS, _PRODUCERS_EXAMPLES)
    parser.add_argument("topic", type=topic_partitions, metavar="TOPIC[:P,P]")
    add_client_options(parser)
    parser.set_defaults(run=lambda args: with_admin(args, show_producers))
    parser = add_command(family, "abort", "abort a transaction", _ABORT, _ABORT_EXAMPLES)
    parser.add_argument("id", nargs="?", metavar="ID", help="a transactional id")
    parser.add_argument(
        "--partition",
        type=topic_partitions,
        metavar="TOPIC:P",
        help="a partition with a hanging transaction; needs --start-offset",
    )
    parser.add_argument(
        "--start-offset", type=offset, metavar="N", help="the first offset of the transaction"
    )
    add_client_options(parser)
    parser.set_defaults(run=_run_abort)


async def list_transactions(args: argparse.Namespace, admin: TransactionAdmin) -> int:
    """Print one row per transactional id."""
    from dohle.cli.output import print_rows

    found = await admin.list_transactions(
        states=args.state,
        producer_ids=args.producer_id,
        running_longer_than_ms=args.running_longer_than,
        transactional_id_pattern=args.pattern,
    )
    rows: list[dict[str, object]] = [
        {
            "transactionalId": each.transactional_id,
            "producerId": each.producer_id,
            "state": each.state,
            "coordinator": each.coordinator_id,
        }
        for each in found
    ]
    print_rows(rows, as_json=args.json, if_empty="there are no transactional ids")
    return 0


async def describe_transactions(args: argparse.Namespace, admin: TransactionAdmin) -> int:
    """Print all details of transactional ids."""
    from dohle.cli.output import print_rows

    results = await admin.describe_transactions(args.ids)
    rows = [_row(results.done[key]) for key in args.ids if key in results.done]
    if not args.json:
        for row in rows:
            partitions = row["partitions"]
            assert isinstance(partitions, list)
            row["partitions"] = " ".join(partitions)
            row["twoPhase"] = "yes" if row["twoPhase"] else None
    print_rows(rows, as_json=args.json, if_empty="")
    for key, error in results.errors.items():
        report_error(_describe_error(key, error))
    return exit_code(results)


def _row(each: TransactionDescription) -> dict[str, object]:
    from dohle.core.seams import SystemClock

    start_ms = each.start_time_ms if each.start_time_ms >= 0 else None
    is_open = start_ms is not None and each.state in _OPEN_STATES
    return {
        "transactionalId": each.transactional_id,
        "coordinator": each.coordinator_id,
        "producerId": each.producer_id,
        "producerEpoch": each.producer_epoch,
        "state": each.state,
        "timeoutMs": each.timeout_ms,
        "twoPhase": each.is_two_phase,
        "startTimeMs": start_ms,
        "durationMs": max(SystemClock().now_ms() - each.start_time_ms, 0) if is_open else None,
        "partitions": [str(partition) for partition in sorted(each.partitions)],
    }


async def show_producers(args: argparse.Namespace, admin: Admin) -> int:
    """Print one row per producer and partition."""
    from dohle.cli.output import print_rows

    partitions = await find_partitions(admin, *args.topic)
    results = await admin.describe_producers(partitions)
    rows: list[dict[str, object]] = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "producerId": each.producer_id,
            "producerEpoch": each.producer_epoch,
            "lastSequence": each.last_sequence,
            "lastTimestamp": each.last_timestamp,
            "coordinatorEpoch": each.coordinator_epoch,
            "currentTxnStartOffset": each.current_txn_start_offset,
        }
        for partition, producers in sorted(results.done.items())
        for each in producers
    ]
    print_rows(rows, as_json=args.json, if_empty="no producers are known")
    report_failures(results)
    return exit_code(results)


def _run_abort(args: argparse.Namespace) -> int:
    by_partition = args.partition is not None or args.start_offset is not None
    if (args.id is None) != by_partition:
        raise UsageError("say what to abort: an ID, or --partition TOPIC:P and --start-offset N")
    if not by_partition:
        return with_part(args, admin_parts.transactions, _abort_by_id)
    if args.partition is None or args.start_offset is None or len(args.partition[1] or ()) != 1:
        raise UsageError("give both --partition TOPIC:P, with one partition, and --start-offset N")
    return with_admin(args, _abort_hanging)


async def _abort_by_id(args: argparse.Namespace, admin: TransactionAdmin) -> int:
    described = await admin.describe_transactions([args.id])
    for error in described.errors.values():
        # Fencing would create an unused id.
        raise CliError(_describe_error(args.id, error))
    before = described.one()
    if before.state != "Ongoing":
        raise CliError(f"{args.id} has no open transaction: its state is {before.state}")
    producer_id, epoch = (await admin.fence_producers([args.id])).one()
    fields = {"transactionalId": args.id, "producerId": producer_id, "producerEpoch": epoch}
    _tell(args, fields, f"{args.id}: aborted (the producer's epoch was {before.producer_epoch})")
    return 0


async def _abort_hanging(args: argparse.Namespace, admin: Admin) -> int:
    (partition,) = await find_partitions(admin, *args.partition)
    producers = (await admin.describe_producers([partition])).one()
    producer = _open_at(producers, args.start_offset)
    if producer is None:
        raise CliError(
            f"no transaction in {partition} starts at offset {args.start_offset}; `dohle txn "
            f"producers {partition.topic}:{partition.partition}` shows the open ones"
        )
    await admin.abort_transaction(
        partition, producer.producer_id, producer.producer_epoch, producer.coordinator_epoch
    )
    fields = {
        "topic": partition.topic,
        "partition": partition.partition,
        "producerId": producer.producer_id,
        "producerEpoch": producer.producer_epoch,
    }
    _tell(args, fields, f"{partition}: transaction of producer {producer.producer_id} aborted")
    return 0


def _open_at(
    producers: tuple[ProducerDescription, ...], start_offset: int
) -> ProducerDescription | None:
    for producer in producers:
        if producer.current_txn_start_offset == start_offset:
            return producer
    return None


def _describe_error(key: str, error: KafkaError) -> str:
    from dohle.core.errors import ErrorCode

    if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return f"there is no transactional id {key}; `dohle txn list` shows all"
    return describe_kafka_error(error)


def _tell(args: argparse.Namespace, fields: dict[str, object], text: str) -> None:
    from dohle.cli.output import print_json

    if args.json:
        print_json({**fields, "result": "aborted"})
    else:
        print(text)
