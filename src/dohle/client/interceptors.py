"""Interceptors: code of the user that sees, and may change, what is sent and what is read.

As in Kafka (``interceptor.classes``) they are called one after the other, each with what the one
before it has returned. What one of them raises is logged and does no harm: its part is left out.
They are called on the client's loop, so they must be quick; ``on_send`` of the blocking face, in
the thread that sends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from dohle.client.errors import ClientClosed
from dohle.client.producer.checks import Headers

if TYPE_CHECKING:
    from dohle.client.consumer.fetched import ConsumedRecord
    from dohle.client.group.offsets import OffsetAndMetadata
    from dohle.client.producer.batch import RecordMetadata
    from dohle.core.ids import TopicPartition

logger = logging.getLogger("dohle.client")

_Interceptor = TypeVar("_Interceptor")


class ProducerRecord(NamedTuple):
    """A record as it was given to ``send``: what is None is found out later."""

    topic: str
    value: Any
    key: Any = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Headers = ()


class ProducerInterceptor:
    """Called for each record that is sent; by default it does nothing."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send: this one, or another. It is not serialized yet."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        """Called with where a record was written, or with why it was not."""

    def close(self) -> None:
        """Called when the producer is closed."""


class ConsumerInterceptor:
    """Called for records that are read and offsets that are committed; by default does nothing."""

    def on_consume(self, records: list[ConsumedRecord]) -> list[ConsumedRecord]:
        """Return the records to hand out: these, others in their place, or fewer.

        They are deserialized. A loop over a consumer hands out one at a time, ``poll`` the first
        one and then the rest. A record that is left out counts as read.
        """
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Called with the offsets that were committed."""

    def close(self) -> None:
        """Called when the consumer is closed."""


class ProducerInterceptors:
    """The interceptors of a producer, in order."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor]) -> None:
        self._interceptors = interceptors

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return what they make of a record."""
        for each in self._interceptors:
            try:
                # Kept only if it is a record in its parts, too.
                record = ProducerRecord(*each.on_send(record))
            except Exception:
                logger.exception("on_send of the interceptor %r failed for %s", each, record.topic)
        return record

    async def send(
        self,
        record: ProducerRecord,
        accept: Callable[..., Awaitable[asyncio.Future[RecordMetadata]]],
    ) -> asyncio.Future[RecordMetadata]:
        """Let a record be accepted as they return it, and tell them its outcome."""
        record = self.on_send(record)
        try:
            outcome = await accept(*record)
        except Exception as error:
            self.refused(error)
            raise
        outcome.add_done_callback(self.acknowledged)
        return outcome

    def acknowledged(
        self, outcome: asyncio.Future[RecordMetadata] | Future[RecordMetadata]
    ) -> None:
        """Tell them the outcome of a record."""
        if outcome.cancelled():
            self._acknowledge(None, ClientClosed("nobody waits for the record any more"))
        elif (error := outcome.exception()) is not None:
            assert isinstance(error, Exception)
            self._acknowledge(None, error)
        else:
            self._acknowledge(outcome.result(), None)

    def refused(self, error: Exception) -> None:
        """Tell them that a record was not accepted."""
        self._acknowledge(None, error)

    def close(self) -> None:
        """Close them."""
        _each(self._interceptors, "close", lambda each: each.close())

    def _acknowledge(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        _each(
            self._interceptors,
            "on_acknowledgement",
            lambda each: each.on_acknowledgement(metadata, error),
        )


class ConsumerInterceptors:
    """The interceptors of a consumer, in order."""

    def __init__(self, interceptors: Sequence[ConsumerInterceptor]) -> None:
        self._interceptors = interceptors

    def on_consume(self, records: list[ConsumedRecord]) -> list[ConsumedRecord]:
        """Return what they make of records."""
        for each in self._interceptors:
            try:
                found = list(each.on_consume(list(records)))
                if len(found) > len(records):
                    raise ValueError("it has returned more records than it was given")
                records = found
            except Exception:
                logger.exception("on_consume of the interceptor %r failed", each)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Tell them of committed offsets."""
        _each(self._interceptors, "on_commit", lambda each: each.on_commit(dict(offsets)))

    def close(self) -> None:
        """Close them."""
        _each(self._interceptors, "close", lambda each: each.close())


def _each(
    interceptors: Sequence[_Interceptor], what: str, call: Callable[[_Interceptor], None]
) -> None:
    for each in interceptors:
        try:
            call(each)
        except Exception:
            logger.exception("%s of the interceptor %r failed", what, each)


def interceptors_of(given: Any, kind: type[_Interceptor]) -> tuple[_Interceptor, ...]:
    """Understand interceptors as users name them: objects, classes, or names of classes."""
    if isinstance(given, str):
        given = [each.strip() for each in given.split(",") if each.strip()]
    several = given if isinstance(given, (list, tuple)) else (given,)
    return tuple(_interceptor_of(each, kind) for each in several)


def _interceptor_of(given: Any, kind: type[_Interceptor]) -> _Interceptor:
    found = given
    if isinstance(found, str):
        module, _, name = found.rpartition(".")
        try:
            found = getattr(import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ValueError(f"there is no interceptor {given!r}: {error}") from None
    if isinstance(found, type) and issubclass(found, kind):
        found = found()
    if not isinstance(found, kind):
        raise TypeError(f"interceptors has {given!r}: it must be a {kind.__name__}")
    return found
