"""An EndTxn that comes late: after it was sent again, answered, and the next transaction has begun.

That is KAFKA-17754. The first version of transactions cannot tell the two transactions apart: the
late commit may commit a half of the second one, which its producer then aborts. In the second
version (KIP-890) each transaction has an epoch of its own, and the late request must be refused.

librdkafka speaks the first version; dohle's own client speaks the second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, Producer

from dohle.client import ClientConfig, Cluster, ProducerConfig
from dohle.client import Producer as OwnProducer
from dohle.core.errors import KafkaError
from dohle.protocol.apis import ApiKey
from dohle.testing.check.inspection import create_topics, inspect
from dohle.testing.check.links import Held, LinkError, Links
from dohle.testing.check.load import CLIENT, Recorder
from dohle.testing.checking.checks import check
from dohle.testing.checking.history import (
    ClientTransaction,
    History,
    Outcome,
    Partition,
    SentRecord,
)

_CALL_S = 60.0
#: After it the request is sent again.
_REQUEST_S = 1.5
_ANSWER_S_MAX = 20.0


@dataclass(frozen=True, slots=True)
class LateEnd:
    """What a late EndTxn has done."""

    #: Of transactions: 1 or 2.
    version: int
    #: Of the request.
    end_txn_version: int
    #: What is wrong with what readers find.
    violations: tuple[str, ...]
    #: Why it could not be tried, if so.
    problem: str = ""

    @property
    def is_allowed(self) -> bool:
        """Whether it may be so. The first version cannot help it."""
        return not self.problem and (self.version == 1 or not self.violations)


class Case:
    """One late EndTxn, in a topic of its own."""

    def __init__(self, bootstrap: str, links: Links, version: int, number: int) -> None:
        self._bootstrap = bootstrap
        self._links = links
        self._version = version
        self._name = f"late-end-{version}-{number}"
        self._recorder = Recorder(History(), 0)
        self._held = Held()

    @property
    def topic(self) -> str:
        """Its topic."""
        return self._name

    def run(self) -> LateEnd:
        """Try it, and judge what is there in the end."""
        try:
            create_topics(self._bootstrap, [self._name], _CALL_S)
            if self._version == 1:
                self._with_librdkafka()
            else:
                _run(self._with_own_client)
            history = self._recorder.history
            inspect(self._bootstrap, [self._name], [], history, _CALL_S)
        except (KafkaException, KafkaError, LinkError) as error:
            return LateEnd(self._version, self._held.version, (), str(error))
        found = tuple(map(str, check(history)))
        return LateEnd(self._version, self._held.version, found)

    def _with_librdkafka(self) -> None:
        producer = Producer(
            {
                **CLIENT,
                "bootstrap.servers": self._bootstrap,
                "client.id": self._name,
                "transactional.id": self._name,
                "socket.timeout.ms": round(_REQUEST_S * 1000),
                "linger.ms": 0,
            }
        )
        producer.init_transactions(_CALL_S)

        def write(send: SentRecord) -> None:
            def delivered(error: Any, message: Any) -> None:
                self._recorder.delivered(send, error, message)

            where = send.partition
            producer.produce(where.topic, send.value, partition=where.number, on_delivery=delivered)
            producer.flush(_CALL_S)

        def begin() -> Callable[[int], None]:
            producer.begin_transaction()
            transaction = self._recorder.begin(self._name)
            transactions.append(transaction)
            return lambda at: write(
                self._recorder.send(self._name, Partition(self._name, at), transaction)
            )

        transactions: list[ClientTransaction] = []
        send = begin()
        send(0)
        send(1)
        self._held = self._links.hold(self._name, ApiKey.END_TXN)
        producer.commit_transaction(_CALL_S)
        transactions[0].outcome = Outcome.OK
        send = begin()
        send(0)
        self._links.release(_ANSWER_S_MAX)
        send(1)
        producer.abort_transaction(_CALL_S)
        transactions[1].outcome = Outcome.FAILED

    async def _with_own_client(self) -> None:
        config = ClientConfig(client_id=self._name, request_timeout_ms=round(_REQUEST_S * 1000))
        settings = ProducerConfig(
            transactional_id=self._name, linger_ms=0, allow_auto_create_topics=False
        )
        async with Cluster(self._bootstrap, config) as cluster:
            producer = OwnProducer(cluster, settings)
            await producer.init_transactions()
            producer.begin_transaction()
            first = self._recorder.begin(self._name)
            for partition in (0, 1):
                await self._send(producer, partition, first)
            self._held = self._links.hold(self._name, ApiKey.END_TXN)
            await producer.commit_transaction()
            first.outcome = Outcome.OK
            producer.begin_transaction()
            second = self._recorder.begin(self._name)
            await self._send(producer, 0, second)
            await asyncio.to_thread(self._links.release, _ANSWER_S_MAX)
            await self._send(producer, 1, second)
            await producer.abort_transaction()
            second.outcome = Outcome.FAILED
            await producer.close()

    async def _send(
        self, producer: OwnProducer, partition: int, transaction: ClientTransaction
    ) -> None:
        where = Partition(self._name, partition)
        send = self._recorder.send(self._name, where, transaction)
        sent = await producer.send_soon(self._name, send.value, partition=partition)
        send.acknowledged((await sent).offset, self._recorder.now_ns)


def _run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())
