"""Records on their way from any thread to the producer's loop, in the order of the calls.

The loop is woken once for all records that come while it is busy: waking it for each would cost
more than all the rest. At most ``RECORDS_MAX`` wait; then their senders do.

Many programs never look at the future of a record. So that records are not lost in silence, the
first failure of each kind is told in the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from threading import Condition
from typing import Any

from dohle.client.errors import ClientClosed
from dohle.client.loop_thread import LoopThread
from dohle.client.producer.batch import RecordMetadata
from dohle.client.producer.producer import Producer
from dohle.core.errors import ErrorCode, KafkaError
from dohle.records.record import Header

logger = logging.getLogger("dohle.client")

RECORDS_MAX = 10_000

_Record = tuple[str, Any, Any, int | None, int | None, Sequence[Header]]


class Handover:
    """The way of records from threads to a producer."""

    def __init__(self, thread: LoopThread, producer: Producer) -> None:
        self._loop = thread.loop
        self._producer = producer
        #: What is to be sent, its outcome, and whether its sender waits for that.
        self._waiting: deque[tuple[_Record, Future[RecordMetadata], bool]] = deque()
        #: Of which failures the log has told, by type and code.
        self._told: set[tuple[type[BaseException], ErrorCode | None]] = set()
        self._changed = Condition()
        self._is_taking = False
        self._is_closed = False
        self._tasks: set[asyncio.Task[None]] = set()

    def put(self, record: _Record, *, is_awaited: bool) -> Future[RecordMetadata]:
        """Hand a record over; whoever waits for its outcome needs no word of it in the log."""
        outcome: Future[RecordMetadata] = Future()
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) < RECORDS_MAX or self._is_closed)
            if self._is_closed:
                raise ClientClosed("the producer is closed")
            self._waiting.append((record, outcome, is_awaited))
            if not self._is_taking:
                self._is_taking = True
                self._loop.call_soon_threadsafe(self._start)
        return outcome

    def wait_until_taken(self) -> None:
        """Wait until the producer has accepted or refused what was handed over."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_taking)

    def close(self) -> None:
        """Take no more records; those that are not taken yet fail."""
        with self._changed:
            self._is_closed = True
            left = [*self._waiting]
            self._waiting.clear()
            self._changed.notify_all()
        for _, outcome, _ in left:
            outcome.set_exception(ClientClosed("the producer was closed before it was sent"))

    def _start(self) -> None:
        task = self._loop.create_task(self._take_all())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take_all(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._is_taking = False
                    self._changed.notify_all()
                    return
                taken = [*self._waiting]
                self._waiting.clear()
                self._changed.notify_all()
            for record, outcome, is_awaited in taken:
                topic, value, key, partition, timestamp, headers = record
                if not outcome.set_running_or_notify_cancel():
                    continue
                try:
                    sent = await self._producer.send_soon(
                        topic,
                        value,
                        key=key,
                        partition=partition,
                        timestamp=timestamp,
                        headers=headers,
                    )
                except Exception as error:
                    self._fail(outcome, error, topic, is_awaited)
                else:
                    sent.add_done_callback(partial(self._settle, outcome, topic, is_awaited))

    def _settle(
        self,
        outcome: Future[RecordMetadata],
        topic: str,
        is_awaited: bool,
        sent: asyncio.Future[RecordMetadata],
    ) -> None:
        if sent.cancelled():
            outcome.set_exception(ClientClosed("the producer was closed before it was sent"))
        elif (error := sent.exception()) is not None:
            self._fail(outcome, error, topic, is_awaited)
        else:
            outcome.set_result(sent.result())

    def _fail(
        self, outcome: Future[RecordMetadata], error: BaseException, topic: str, is_awaited: bool
    ) -> None:
        outcome.set_exception(error)
        kind = (type(error), error.code if isinstance(error, KafkaError) else None)
        if not is_awaited and kind not in self._told:
            self._told.add(kind)
            logger.warning(
                "a record for %s was not delivered: %s. Others may fail like this: the futures "
                "that send_soon returns tell of each",
                topic,
                error,
            )
