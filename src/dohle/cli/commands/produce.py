"""``dohle produce``: write the lines of stdin to a topic, one record per line."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dohle.cli.errors import CliError, UsageError
from dohle.cli.options import Commands, add_client_options, add_command, escaped, natural
from dohle.cli.session import with_cluster

if TYPE_CHECKING:
    from dohle.client import Cluster, ProducerConfig

_DESCRIPTION = """\
Write records to a topic: each line of stdin is a value, or with -K a key and
a value. The command ends when all records are written, and fails if one is not.
With --json it prints partition and offset of each record.

With --input json each line is a record as `dohle consume --json` prints it: key,
value and headers, which may be binary, partition and timestamp are kept, so that a
pipe copies a topic, and a file of such lines is a backup. Only "value" is needed;
keys, values and headers may also be plain texts.

Large input is sent in large batches; on a terminal it is told how far it is.
"""
_EXAMPLES = """\
examples:
  echo hello | dohle produce greetings
  dohle produce orders -K: < orders.txt
  dohle produce orders -K '\\t' -Z -H source=import --codec zstd < orders.tsv
  dohle produce orders -p 2 --acks 1 < orders.txt
  dohle consume orders -e --json | dohle produce copy --input json
  dohle consume orders -e --json | zstd > orders.zst        # a backup
  zstdcat orders.zst | dohle produce orders --input json    # and back

exit codes: 0 all records are written, 1 at least one is not, 2 wrong command line
"""
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_INPUTS = ("lines", "json")
_ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}

# How long to wait for a topic that the cluster creates on demand.
_CREATION_TIMEOUT_MS = 3_000


def add_parser(commands: Commands) -> None:
    """Declare the command."""
    parser = add_command(
        commands, "produce", "write lines of stdin to a topic", _DESCRIPTION, _EXAMPLES
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "-i",
        "--input",
        choices=_INPUTS,
        default=_INPUTS[0],
        help="what lines are: values (perhaps with keys), or records in JSON (default: lines)",
    )
    parser.add_argument(
        "--ignore-partition",
        action="store_true",
        help="with --input json: choose partitions by keys, whatever the records say",
    )
    parser.add_argument(
        "-K",
        "-k",
        "--key-separator",
        type=_separator,
        metavar="SEP",
        help="lines are KEY SEP VALUE, split at the first SEP; \\t is a tab",
    )
    parser.add_argument(
        "-H",
        "--header",
        type=_header,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a header for each record; may be repeated",
    )
    parser.add_argument("-Z", "--null", action="store_true", help="an empty key or value is null")
    parser.add_argument(
        "-p",
        "--partition",
        type=natural,
        metavar="N",
        help=("the partition (default: chosen by the key)"),
    )
    parser.add_argument(
        "-z", "--codec", choices=_CODECS, default="none", help="compression (default: none)"
    )
    parser.add_argument(
        "--acks",
        choices=tuple(_ACKS),
        default="all",
        help="which replicas must have a record before it counts as written (default: all)",
    )
    parser.add_argument(
        "--idempotent",
        action=argparse.BooleanOptionalAction,
        help="never write a record twice (default: on with --acks all)",
    )
    add_client_options(parser)
    parser.set_defaults(run=run)


def _separator(text: str) -> bytes:
    found = escaped(text)
    if not found:
        raise argparse.ArgumentTypeError("the separator must not be empty")
    return found


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form name=value")
    return name, value.encode("utf-8", "surrogateescape") if equals else None


def run(args: argparse.Namespace) -> int:
    """Send line by line."""
    if args.input == "json" and (args.key_separator is not None or args.null):
        raise UsageError("--input json says what keys and nulls are: use it without -K and -Z")
    if args.ignore_partition and args.input != "json":
        raise UsageError("--ignore-partition is for --input json: lines have no partition")
    config = _producer_config(args)

    async def work(cluster: Cluster) -> int:
        from dohle.cli.commands.produce_input import ProduceInput
        from dohle.client import Producer

        partitions = await _find_topic(cluster, args.topic)
        if args.partition is not None and args.partition not in partitions:
            raise CliError(
                f"{args.topic} has {len(partitions)} partitions, from 0 on, and no partition "
                f"{args.partition}"
            )
        async with Producer(cluster, config) as producer:
            sending = ProduceInput(args, cluster, producer, partitions)
            await sending.send_all()
        return sending.finish()

    return with_cluster(args, work)


def _producer_config(args: argparse.Namespace) -> ProducerConfig:
    from dohle.client import ProducerConfig
    from dohle.records.compression.codecs import Codec

    acks = _ACKS[args.acks]
    idempotent = acks == -1 if args.idempotent is None else args.idempotent
    if idempotent and acks != -1:
        raise UsageError(f"--idempotent needs --acks all, not {args.acks}")
    return ProducerConfig(acks=acks, enable_idempotence=idempotent, codec=Codec[args.codec.upper()])


async def _find_topic(cluster: Cluster, name: str) -> list[int]:
    """Return the partitions of the topic; asking for it may create it."""
    from dohle.core.errors import ErrorCode, KafkaError
    from dohle.core.ids import TopicName

    async def look() -> list[int]:
        topic = await cluster.topic(TopicName(name), allow_auto_topic_creation=True)
        return sorted(topic.partitions)

    try:
        return await cluster.retry(f"topic {name}", look, timeout_ms=_CREATION_TIMEOUT_MS)
    except KafkaError as error:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        cause = error.__cause__
        if error.code is unknown or (isinstance(cause, KafkaError) and cause.code is unknown):
            raise CliError(
                f"there is no topic {name}, and the cluster does not create topics "
                f"automatically: run `dohle topic create {name}`"
            ) from None
        raise
