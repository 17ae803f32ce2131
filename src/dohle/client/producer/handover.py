"""Records on their way from any thread to the producer's loop, in the order of the calls.

The loop is woken once for all records that come while it is busy: waking it for each would cost
more than all the rest. At most ``RECORDS_MAX`` wait; then their senders do.
"""

from __future__ import annotations

import asyncio
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
from dohle.records.record import Header

RECORDS_MAX = 10_000

_Record = tuple[str, Any, Any, int | None, int | None, Sequence[Header]]


class Handover:
    """The way of records from threads to a producer."""

    def __init__(self, thread: LoopThread, producer: Producer) -> None:
        self._loop = thread.loop
        self._producer = producer
        self._waiting: deque[tuple[_Record, Future[RecordMetadata]]] = deque()
        self._changed = Condition()
        self._is_taking = False
        self._is_closed = False
        self._tasks: set[asyncio.Task[None]] = set()

    def put(self, record: _Record) -> Future[RecordMetadata]:
        """Hand a record over."""
        outcome: Future[RecordMetadata] = Future()
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) < RECORDS_MAX or self._is_closed)
            if self._is_closed:
                raise ClientClosed("the producer is closed")
            self._waiting.append((record, outcome))
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
        for _, outcome in left:
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
            for (topic, value, key, partition, timestamp, headers), outcome in taken:
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
                    outcome.set_exception(error)
                else:
                    sent.add_done_callback(partial(_settle, outcome))


def _settle(outcome: Future[RecordMetadata], sent: asyncio.Future[RecordMetadata]) -> None:
    if sent.cancelled():
        outcome.set_exception(ClientClosed("the producer was closed before it was sent"))
    elif (error := sent.exception()) is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(sent.result())
