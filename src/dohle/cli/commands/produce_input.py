"""One run of ``dohle produce``: from the lines of stdin to batches, and their outcome."""

from __future__ import annotations

import argparse
import os
import stat
import sys
import time
from asyncio import Future
from collections.abc import Sequence

from dohle.cli.commands.record_batches import NewRecord, RecordBatches, SentBatch
from dohle.cli.commands.record_lines import LineFormat, read_lines
from dohle.cli.errors import CliError
from dohle.cli.progress import Progress
from dohle.cli.session import describe_kafka_error
from dohle.client.cluster import Cluster
from dohle.client.producer.batch import RecordMetadata
from dohle.client.producer.producer import Producer
from dohle.core.errors import KafkaError


class ProduceInput:
    """What was sent, and the outcome."""

    def __init__(
        self,
        args: argparse.Namespace,
        cluster: Cluster,
        producer: Producer,
        partitions: Sequence[int],
    ) -> None:
        self._args = args
        self._cluster = cluster
        self._producer = producer
        self._partitions = partitions
        self._format = LineFormat(args.key_separator, args.null)
        self._batches = RecordBatches(
            producer,
            args.topic,
            partitions,
            find_limit=self._find_limit,
            on_outcome=self._note,
            first_turn=cluster.rng.choice(range(len(partitions))),
            keeps_timestamps=args.json,
        )
        self._lines = 0
        self._failures = 0
        self._first_failure: KafkaError | None = None
        self._closed_pipe: BrokenPipeError | None = None
        self._is_flush_due = False
        is_typed = sys.stdin.isatty()
        if is_typed and sys.stderr.isatty():
            print("each line is a record; Ctrl-D ends", file=sys.stderr)
        self._progress = Progress(
            is_shown=not is_typed and not (args.json and sys.stdout.isatty()),
            bytes_in_all=_size_left(sys.stdin.fileno()),
        )

    async def send_all(self) -> None:
        """Send until the input ends or a record fails."""
        try:
            async for lines in read_lines(sys.stdin.fileno()):
                if lines:
                    await self._add(lines)
                    self._progress.add(len(lines), sum(map(len, lines)) + len(lines))
                else:
                    await self._batches.flush()
                if self._failures or self._closed_pipe:
                    break
        except KafkaError as error:
            self._fail(1, error)
        finally:
            await self._batches.flush()

    async def _add(self, lines: Sequence[bytes]) -> None:
        args = self._args
        now_ms = time.time_ns() // 1_000_000
        if args.input == "json":
            for line in lines:
                self._lines += 1
                if line.strip():
                    await self._batches.add(self._from_json(line, now_ms))
        elif args.header:
            for line in lines:
                key, value = self._format.split(line)
                await self._batches.add(NewRecord(key, value, now_ms, args.header, args.partition))
        else:
            await self._batches.add_pairs(self._format.split_all(lines), now_ms, args.partition)

    def _from_json(self, line: bytes, now_ms: int) -> NewRecord:
        from dohle.cli.commands.record_json import parse_record

        args = self._args
        try:
            record = parse_record(
                line,
                now_ms=now_ms,
                with_partition=args.partition is None and not args.ignore_partition,
            )
        except ValueError as error:
            raise CliError(f"line {self._lines}: {error}; what was before it is written") from None
        if args.partition is not None:
            record = record._replace(partition=args.partition)
        elif record.partition is not None and record.partition not in self._partitions:
            raise CliError(
                f"line {self._lines}: {args.topic} has {len(self._partitions)} partitions and no "
                f"{record.partition}; --ignore-partition lets the keys choose. What was before it "
                "is written"
            )
        if args.header:
            record = record._replace(headers=[*record.headers, *args.header])
        return record

    async def _find_limit(self) -> int:
        """Return how large the topic's batches may be, or 0 without the right to ask."""
        from dohle.client.admin.config_values import ConfigResource, ResourceType
        from dohle.client.admin.configs import ConfigAdmin

        topic = ConfigResource(ResourceType.TOPIC, self._args.topic)
        try:
            entries = (await ConfigAdmin(self._cluster).describe_configs([topic])).one()
        except KafkaError:
            return 0
        found = [each.value for each in entries if each.name == "max.message.bytes"]
        return int(found[0]) if found and found[0] is not None else 0

    def _note(self, sent: SentBatch, future: Future[RecordMetadata]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            self._fail(sent.record_count, error)
        elif self._args.json and self._closed_pipe is None:
            self._print(sent, future.result())
            if not self._is_flush_due:
                self._is_flush_due = True
                future.get_loop().call_soon(self._flush)

    def _fail(self, records: int, error: BaseException) -> None:
        self._failures += records
        if self._first_failure is None and isinstance(error, KafkaError):
            self._first_failure = error

    def _print(self, sent: SentBatch, written: RecordMetadata) -> None:
        from dohle.cli.output import print_json

        # A batch's metadata has the largest of its timestamps, unless the broker sets them.
        is_broker_time = written.timestamp != max(sent.timestamps)
        try:
            for delta, timestamp in enumerate(sent.timestamps):
                print_json(
                    {
                        "topic": written.topic,
                        "partition": written.partition,
                        "offset": written.offset if written.offset < 0 else written.offset + delta,
                        "timestamp": written.timestamp if is_broker_time else timestamp,
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


def _size_left(descriptor: int) -> int | None:
    """Return how much of a file is still to be read; None if it is a pipe or a terminal."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return None
    return max(status.st_size - os.lseek(descriptor, 0, os.SEEK_CUR), 0)
