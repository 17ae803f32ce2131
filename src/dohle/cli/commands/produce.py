"""``dohle produce``: write the lines of stdin to a topic, one record per line."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from dohle.cli.errors import CliError, UsageError
from dohle.cli.options import Commands, add_client_options, add_command, escaped, natural
from dohle.cli.session import describe_kafka_error, with_cluster

if TYPE_CHECKING:
    from asyncio import Future

    from dohle.client import Cluster, Producer, ProducerConfig, RecordMetadata
    from dohle.core.errors import KafkaError

_DESCRIPTION = """\
Write records to a topic: each line of stdin is a value, or with -K a key and
a value. The command ends when all records are written, and fails if one is not.
With --json it prints partition and offset of each record.
"""
_EXAMPLES = """\
examples:
  echo hello | dohle produce greetings
  dohle produce orders -K: < orders.txt
  dohle produce orders -K '\\t' -Z -H source=import --codec zstd < orders.tsv
  dohle produce orders -p 2 --acks 1 < orders.txt

exit codes: 0 all records are written, 1 at least one is not, 2 wrong command line
"""
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
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
    config = _producer_config(args)

    async def work(cluster: Cluster) -> int:
        from dohle.client import Producer

        await _find_topic(cluster, args.topic)
        sending = _Sending(args)
        async with Producer(cluster, config) as producer:
            await sending.send_all(producer)
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


async def _find_topic(cluster: Cluster, name: str) -> None:
    """Make sure that the topic exists; asking for it may create it."""
    from dohle.core.errors import ErrorCode, KafkaError
    from dohle.core.ids import TopicName

    async def look() -> None:
        await cluster.topic(TopicName(name), allow_auto_topic_creation=True)

    try:
        await cluster.retry(f"topic {name}", look, timeout_ms=_CREATION_TIMEOUT_MS)
    except KafkaError as error:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        cause = error.__cause__
        if error.code is unknown or (isinstance(cause, KafkaError) and cause.code is unknown):
            raise CliError(
                f"there is no topic {name}, and the cluster does not create topics "
                f"automatically: run `dohle topic create {name}`"
            ) from None
        raise


class _Sending:
    """One run: what was sent, and the outcome."""

    def __init__(self, args: argparse.Namespace) -> None:
        from dohle.cli.commands.record_lines import LineFormat
        from dohle.cli.progress import Progress

        self._args = args
        self._format = LineFormat(args.key_separator, args.null)
        self._failures = 0
        self._first_failure: KafkaError | None = None
        self._closed_pipe: BrokenPipeError | None = None
        self._is_flush_due = False
        is_typed = sys.stdin.isatty()
        if is_typed and sys.stderr.isatty():
            print("each line is a record; Ctrl-D ends", file=sys.stderr)
        self._progress = Progress(is_shown=not is_typed and not (args.json and sys.stdout.isatty()))

    async def send_all(self, producer: Producer) -> None:
        """Send until the input ends or a record fails."""
        from dohle.cli.commands.record_lines import read_lines

        args = self._args
        async for lines in read_lines(sys.stdin.fileno()):
            for line in lines:
                key, value = self._format.split(line)
                future = await producer.send_soon(
                    args.topic, value, key=key, partition=args.partition, headers=args.header
                )
                future.add_done_callback(self._note)
            self._progress.add(len(lines), sum(map(len, lines)))
            if self._failures or self._closed_pipe:
                return

    def _note(self, future: Future[RecordMetadata]) -> None:
        from dohle.core.errors import KafkaError

        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            if self._args.json and self._closed_pipe is None:
                self._print(future.result())
                if not self._is_flush_due:
                    self._is_flush_due = True
                    future.get_loop().call_soon(self._flush)
            return
        self._failures += 1
        if self._first_failure is None and isinstance(error, KafkaError):
            self._first_failure = error

    def _print(self, written: RecordMetadata) -> None:
        from dohle.cli.output import print_json

        try:
            print_json(
                {
                    "topic": written.topic,
                    "partition": written.partition,
                    "offset": written.offset,
                    "timestamp": written.timestamp,
                }
            )
        except BrokenPipeError as error:
            # The loop that called this would only log it.
            self._closed_pipe = error

    def _flush(self) -> None:
        """Print at once, in one write, what one response brought."""
        self._is_flush_due = False
        try:
            sys.stdout.flush()
        except BrokenPipeError as error:
            self._closed_pipe = error

    def finish(self) -> int:
        """Raise if anything failed."""
        self._progress.end()
        if self._closed_pipe is not None:
            raise self._closed_pipe
        if self._failures:
            why = self._first_failure
            because = "" if why is None else f": {describe_kafka_error(why)}"
            raise CliError(
                f"{self._failures} of {self._progress.records} records were not written{because}"
            )
        return 0
