"""A consume-transform-produce loop in transactions, to be run as a process and killed at any time.

``python -m tests.interop.eos_worker BOOTSTRAP TRANSACTIONAL_ID GROUP INPUT OUTPUT SEED``

It goes on until SIGTERM tells it to end. Every so often it aborts a transaction on purpose. Its
group has offsets for all partitions from the start on: if it finds none it ends.
"""

from __future__ import annotations

import random
import signal
import sys
from typing import Any

import confluent_kafka

RECORDS_PER_TRANSACTION = 750
ABORT_CHANCE = 0.05
CALL_TIMEOUT_S = 30.0


class Worker:
    """One incarnation."""

    def __init__(
        self, bootstrap: str, transactional_id: str, group: str, topics: tuple[str, str], seed: int
    ) -> None:
        common = {
            "bootstrap.servers": bootstrap,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 100,
            "log_level": 0,
            # Librdkafka 2.16 forgets its brokers when none is up, but its producer goes on asking
            # the forgotten one for the group's coordinator.
            "metadata.recovery.strategy": "none",
        }
        self._consumer = confluent_kafka.Consumer(
            {
                **common,
                "group.id": group,
                "enable.auto.commit": False,
                # Librdkafka 2.16 takes an offset that a transaction still holds back for none, if
                # its assignment changes meanwhile. It must not begin at the beginning then.
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "session.timeout.ms": 1_500,
                "heartbeat.interval.ms": 300,
                "fetch.wait.max.ms": 20,
            }
        )
        self._producer = confluent_kafka.Producer(
            {
                **common,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": 20_000,
                "linger.ms": 2,
            }
        )
        self._input, self._output = topics
        self._rng = random.Random(seed)
        self._is_ending = False
        signal.signal(signal.SIGTERM, self._end)

    def _end(self, *_: object) -> None:
        self._is_ending = True

    def run(self) -> None:
        """Go on until told to end, or until this incarnation is fenced."""
        self._producer.init_transactions(CALL_TIMEOUT_S)
        self._consumer.subscribe([self._input])
        while not self._is_ending:
            # Of before the records: if partitions are taken away after that, the group's next
            # generation has begun, and this one's offsets are refused.
            membership = self._consumer.consumer_group_metadata()
            records = self._consumer.consume(RECORDS_PER_TRANSACTION, timeout=0.2)
            if any(is_lost(record.error()) for record in records):
                raise SystemExit("its place in a partition was not found")
            records = [record for record in records if record.error() is None]
            if records:
                self._transform(records, membership)
        self._consumer.close()

    def _transform(self, records: list[Any], membership: object) -> None:
        try:
            self._producer.begin_transaction()
            for record in records:
                self._write(record)
            if self._rng.random() < ABORT_CHANCE:
                self._producer.flush(CALL_TIMEOUT_S)
                self._abort()
                return
            ends = {record.partition(): record.offset() + 1 for record in records}
            positions = [
                confluent_kafka.TopicPartition(self._input, partition, offset)
                for partition, offset in ends.items()
            ]
            self._producer.send_offsets_to_transaction(positions, membership, CALL_TIMEOUT_S)
            self._commit()
        except confluent_kafka.KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._abort()

    def _write(self, record: Any) -> None:
        while True:
            try:
                value = b"seen " + record.value()
                self._producer.produce(self._output, value, key=record.key())
                break
            except BufferError:
                self._producer.poll(0.01)
        self._producer.poll(0)

    def _commit(self) -> None:
        while True:
            try:
                self._producer.commit_transaction(CALL_TIMEOUT_S)
                break
            except confluent_kafka.KafkaException as error:
                if not error.args[0].retriable():
                    raise

    def _abort(self) -> None:
        self._producer.abort_transaction(CALL_TIMEOUT_S)
        # What was read has not been written: go back to where the group's offsets are.
        assignment = self._consumer.assignment()
        for place in self._consumer.committed(assignment, timeout=CALL_TIMEOUT_S):
            self._consumer.seek(place)


def is_lost(error: confluent_kafka.KafkaError | None) -> bool:
    """Tell whether the consumer does not know where to go on."""
    return error is not None and error.code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET


def main() -> None:
    """Run as the arguments say."""
    bootstrap, transactional_id, group, source, target, seed = sys.argv[1:]
    Worker(bootstrap, transactional_id, group, (source, target), int(seed)).run()


if __name__ == "__main__":
    main()
