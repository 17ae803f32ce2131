"""Transactional producers of three libraries behind one face, for use by one thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors

from tests.interop.group_consumers import (
    ConfluentConsumer,
    GroupConsumer,
    KafkaPythonConsumer,
    Place,
)

CALL_S = 20.0

Offsets = Mapping[Place, int]
T = TypeVar("T")


class Fenced(Exception):
    """A newer incarnation has taken over."""


class Refused(Exception):
    """The broker did not do it, for another reason."""


@dataclass(frozen=True, slots=True)
class Producing:
    """How to produce."""

    library: str
    bootstrap: str
    transactional_id: str
    timeout_ms: int = 60_000
    client_id: str = "client"


class TxnProducer(Protocol):
    """What each of them can do. Errors are Fenced or Refused."""

    def begin(self) -> None:
        """Begin a transaction."""

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        """Write a record and wait until it is there."""

    def send_offsets(
        self, offsets: Mapping[Place, int], consumer: GroupConsumer, group: str
    ) -> None:
        """Have the transaction commit offsets of the group that the consumer is a member of."""

    def commit(self) -> None:
        """Commit it."""

    def abort(self) -> None:
        """Abort it."""

    def close(self) -> None:
        """Go, without another word about an open transaction."""


class ConfluentProducer:
    """confluent-kafka: librdkafka."""

    def __init__(self, how: Producing) -> None:
        self.producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": how.bootstrap,
                "client.id": how.client_id,
                "transactional.id": how.transactional_id,
                "transaction.timeout.ms": how.timeout_ms,
                "message.timeout.ms": min(how.timeout_ms, 20_000),
                "linger.ms": 0,
                "retry.backoff.ms": 10,
                "retry.backoff.max.ms": 50,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "log_level": 0,
            }
        )
        self._call(lambda: self.producer.init_transactions(CALL_S))

    def _call(self, act: Callable[[], object]) -> None:
        try:
            act()
        except confluent_kafka.KafkaException as error:
            raise _confluent_error(error.args[0]) from error
        except SystemError as error:
            # A fatal error was raised, and then a delivery report called with it still set.
            if not isinstance(error.__cause__, confluent_kafka.KafkaException):
                raise
            raise _confluent_error(error.__cause__.args[0]) from error

    def begin(self) -> None:
        self._call(self.producer.begin_transaction)

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        failures: list[Any] = []

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                failures.append(error)

        self._call(
            lambda: self.producer.produce(topic, value, partition=partition, on_delivery=delivered)
        )
        self._call(lambda: self.producer.flush(CALL_S))
        if failures:
            raise _confluent_error(failures[0])

    def send_offsets(
        self, offsets: Mapping[Place, int], consumer: GroupConsumer, group: str
    ) -> None:
        assert isinstance(consumer, ConfluentConsumer)
        parts = [
            confluent_kafka.TopicPartition(*place, offset) for place, offset in offsets.items()
        ]
        metadata = consumer.consumer.consumer_group_metadata()
        self._call(lambda: self.producer.send_offsets_to_transaction(parts, metadata, CALL_S))

    def commit(self) -> None:
        self._call(lambda: self.producer.commit_transaction(CALL_S))

    def abort(self) -> None:
        self._call(lambda: self.producer.abort_transaction(CALL_S))

    def close(self) -> None:
        with suppress(confluent_kafka.KafkaException):
            self.producer.purge()
            self.producer.flush(0)
        # Its threads and sockets end with the last reference to it; an exception that a test has
        # caught may keep this object until the garbage collector runs.
        del self.producer


def _confluent_error(error: Any) -> Exception:
    fencing = (
        confluent_kafka.KafkaError._FENCED,
        confluent_kafka.KafkaError.PRODUCER_FENCED,
        confluent_kafka.KafkaError.INVALID_PRODUCER_EPOCH,
    )
    is_fenced = error.code() in fencing or "fenced" in str(error).lower()
    return Fenced(error) if is_fenced else Refused(error)


class KafkaPythonProducer:
    """kafka-python."""

    def __init__(self, how: Producing) -> None:
        self.producer = kafka.KafkaProducer(
            bootstrap_servers=how.bootstrap,
            client_id=how.client_id,
            transactional_id=how.transactional_id,
            transaction_timeout_ms=how.timeout_ms,
            linger_ms=0,
            retry_backoff_ms=10,
            reconnect_backoff_ms=10,
            reconnect_backoff_max_ms=50,
        )
        self._call(self.producer.init_transactions)

    def _call(self, act: Callable[[], T]) -> T:
        fencing = (kafka.errors.ProducerFencedError, kafka.errors.InvalidProducerEpochError)
        try:
            return act()
        except fencing as error:
            raise Fenced from error
        except kafka.errors.KafkaError as error:
            if isinstance(error.args and error.args[0], fencing):
                raise Fenced from error
            raise Refused from error

    def begin(self) -> None:
        self._call(self.producer.begin_transaction)

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        future = self._call(lambda: self.producer.send(topic, value, partition=partition))
        self._call(lambda: future.get(CALL_S))

    def send_offsets(
        self, offsets: Mapping[Place, int], consumer: GroupConsumer, group: str
    ) -> None:
        assert isinstance(consumer, KafkaPythonConsumer)
        metadata = consumer.consumer.group_metadata()
        parts = {
            kafka.TopicPartition(*place): kafka.OffsetAndMetadata(offset, "", -1)
            for place, offset in offsets.items()
        }
        self._call(lambda: self.producer.send_offsets_to_transaction(parts, metadata))

    def commit(self) -> None:
        self._call(self.producer.commit_transaction)

    def abort(self) -> None:
        self._call(self.producer.abort_transaction)

    def close(self) -> None:
        self.producer.close(timeout=0)


class AiokafkaProducer:
    """aiokafka, whose loop runs only while it is being asked."""

    def __init__(self, how: Producing) -> None:
        self._runner = asyncio.Runner()
        # It forgets futures that have failed, and would tell about them much later.
        self._runner.get_loop().set_exception_handler(lambda *_: None)

        async def start() -> Any:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=how.bootstrap,
                client_id=how.client_id,
                transactional_id=how.transactional_id,
                transaction_timeout_ms=how.timeout_ms,
                linger_ms=0,
                retry_backoff_ms=10,
            )
            await producer.start()
            return producer

        self.producer = self._run(start())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._runner.run(work)
        except (aiokafka.errors.ProducerFenced, aiokafka.errors.InvalidProducerEpoch) as error:
            raise Fenced from error
        except aiokafka.errors.KafkaError as error:
            raise Refused from error

    def begin(self) -> None:
        self._run(self.producer.begin_transaction())

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._run(self.producer.send_and_wait(topic, value, partition=partition))

    def send_offsets(
        self, offsets: Mapping[Place, int], consumer: GroupConsumer, group: str
    ) -> None:
        parts = {aiokafka.TopicPartition(*place): offset for place, offset in offsets.items()}
        self._run(self.producer.send_offsets_to_transaction(parts, group))

    def commit(self) -> None:
        self._run(self.producer.commit_transaction())

    def abort(self) -> None:
        self._run(self.producer.abort_transaction())

    def close(self) -> None:
        try:
            self._run(self.producer.stop())
        finally:
            # Cancels what the library has left behind, such as a connection that is being made.
            self._runner.close()


def producing(how: Producing) -> TxnProducer:
    """Return a producer that has taken over its transactional id."""
    kinds: Mapping[str, Callable[[Producing], TxnProducer]] = {
        "confluent": ConfluentProducer,
        "kafka-python": KafkaPythonProducer,
        "aiokafka": AiokafkaProducer,
    }
    return kinds[how.library](how)
