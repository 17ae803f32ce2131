"""(e) Transactions of librdkafka, one at a time for each of several producers.

The partitions are led by all nodes, and so are the producers' coordinators: ending a transaction
takes markers from broker to broker. A cluster that cannot end a transaction is not measured.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import KafkaException, Producer

from bench.cluster.nodes import NODES
from bench.cluster.topics import create_topic
from bench.cluster.turns import Turn
from bench.comparison.figures import Measure
from bench.versus.figures import Figure
from bench.versus.taking_turns import Skipped

TITLE = "transactions"
SETTINGS = {"num.partitions": "1"}

PRODUCERS = 10
_TOPIC = "transactional"
_PARTITIONS = 9
_RECORD = bytes(100)
_FIRST_S, _TIMEOUT_S = 30.0, 60.0
#: Partitions of each transaction, and how many transactions.
_CASES = ((1, 1_000), (_PARTITIONS, 500))


def turn(turn: Turn) -> list[Figure]:
    """Run transactions of one partition and of several."""
    cluster = turn.server
    create_topic(cluster, _TOPIC, [*NODES] * (_PARTITIONS // len(NODES)))
    try:
        producers = [_producer(cluster.address, number) for number in range(PRODUCERS)]
        # Across all leaders: markers have to reach each of them.
        _run(producers[0], 0, _PARTITIONS, 2, _FIRST_S)
    except KafkaException as error:
        raise Skipped(f"a transaction cannot be ended: {error}") from error

    def run(partitions: int, count: int) -> list[Figure]:
        each = max(1, count // PRODUCERS)
        with ThreadPoolExecutor(PRODUCERS) as threads:

            def load() -> None:
                numbered = enumerate(producers)
                for one in [
                    threads.submit(_run, producer, number, partitions, each, _TIMEOUT_S)
                    for number, producer in numbered
                ]:
                    one.result()

            sample = cluster.measure(0, each * PRODUCERS, load)
        what = "1 partition" if partitions == 1 else f"{partitions} partitions"
        case = f"of {what}, {PRODUCERS} producers"
        return [
            Figure(case, Measure.RATE, sample.requests / sample.seconds),
            Figure(case, Measure.CPU_PER_REQUEST, sample.cpu_us_per_request),
        ]

    def warm_up(number: int) -> None:
        run(_CASES[number % len(_CASES)][0], 5 * PRODUCERS)

    turn.warm_up(warm_up, cycle=len(_CASES))
    return [figure for partitions, count in _CASES for figure in run(partitions, turn.size(count))]


def _producer(address: str, number: int) -> Any:
    producer = Producer(
        {
            "bootstrap.servers": address,
            "transactional.id": f"producer-{number}",
            "linger.ms": 0,
            "log_level": 0,
        }
    )
    producer.init_transactions(_FIRST_S)
    return producer


def _run(producer: Any, first: int, partitions: int, count: int, timeout_s: float) -> None:
    """Run transactions; those of one partition go to another one for each producer."""
    for _ in range(count):
        producer.begin_transaction()
        for partition in range(first, first + partitions):
            producer.produce(_TOPIC, _RECORD, partition=partition % _PARTITIONS)
        producer.commit_transaction(timeout_s)
