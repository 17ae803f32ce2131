"""What the sink asks of real brokers: the ledger, and the transactions of its tasks.

There is one for each process and set of options, kept as long as the process: connections stay
open, and what was read of the ledger is not read again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from dohle.client import (
    Admin,
    Cluster,
    ConfigResource,
    PreparedTransaction,
    Producer,
    ProducerConfig,
    ResourceType,
    end_transaction,
)
from dohle.client.net.connection import SHARED
from dohle.client.producer.batch import ProducerIdentity
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TransactionalId
from dohle.records.compression.codecs import Codec
from dohle.spark.sink.ledger import LedgerReader
from dohle.spark.sink.protocol import (
    EMPTY,
    ONGOING,
    Standing,
    decode_standing,
    encode_standing,
    ledger_id,
)

_log = logging.getLogger("dohle.spark.sink")

_MAX_TIMEOUT = "transaction.max.timeout.ms"
#: Kafka's own default of that, and a timeout that every broker allows.
_MAX_TIMEOUT_DEFAULT_MS = 900_000
_MODEST_TIMEOUT_MS = 60_000
_FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
#: In the newer protocol a fenced producer is told that its transaction was aborted.
_ABORTED = frozenset({*_FENCED, ErrorCode.INVALID_TXN_STATE})
_NO_TWO_PHASE = frozenset(
    {ErrorCode.UNSUPPORTED_VERSION, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
)


class BrokerSinkCluster:
    """The brokers, as the steps of a batch need them."""

    def __init__(self, cluster: Cluster, *, topic: str, prefix: str, timeout_ms: int) -> None:
        self.prefix = prefix
        self.cluster = cluster
        self._admin = Admin(cluster)
        self._ledger = LedgerReader(cluster, topic)
        self._timeout_ms = timeout_ms
        self._max_timeout_ms: int | None = None
        self._offers_two_phase = True

    # The ledger

    async def peek(self, query_id: str) -> Standing | None:
        """Return a query's standing as last written."""
        await self._ledger.ensure_topic()
        return _decoded(await self._ledger.read(query_id))

    @asynccontextmanager
    async def hold(self, query_id: str) -> AsyncIterator[BrokerLedgerHold]:
        """Fence everyone who may write the standing, and return it."""
        await self._ledger.ensure_topic()
        config = ProducerConfig(
            transactional_id=ledger_id(self.prefix, query_id),
            codec=Codec.GZIP,
            linger_ms=0,
            max_block_ms=self._timeout_ms,
            delivery_timeout_ms=self._timeout_ms,
        )
        producer = Producer(self.cluster, config, channel=SHARED)
        try:
            await producer.init_transactions()
            standing = _decoded(await self._ledger.read_surely(query_id))
            yield BrokerLedgerHold(producer, self._ledger, query_id, standing, self._timeout_ms)
        finally:
            await producer.close(flush=False)

    # Transactions

    async def claim(self, transactional_id: TransactionalId) -> ProducerIdentity:
        """Get an identity that is never given to anyone else."""
        return ProducerIdentity(*(await self._admin.fence_producers([transactional_id])).one())

    async def describe(
        self, ids: Collection[TransactionalId]
    ) -> Mapping[str, tuple[str, ProducerIdentity]]:
        """Return the state and the producer of those ids that are known."""
        found = await self._admin.describe_transactions(ids)
        for error in found.errors.values():
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise error
        return {
            each.transactional_id: (
                each.state,
                ProducerIdentity(each.producer_id, each.producer_epoch),
            )
            for each in found.done.values()
        }

    async def states(self, begin: str) -> Mapping[str, str]:
        """Return the ids with this prefix that are open or empty, and which of both."""
        try:
            listed = await self._admin.list_transactions(states=(ONGOING, EMPTY))
        except KafkaError as error:
            if error.code is not ErrorCode.BROKER_ID_NOT_REGISTERED:
                raise
            # A broker has left since the list was made; now that is known.
            listed = await self._admin.list_transactions(states=(ONGOING, EMPTY))
        return {
            each.transactional_id: each.state
            for each in listed
            if each.transactional_id.startswith(begin)
        }

    async def end(self, transaction: PreparedTransaction, *, commit: bool) -> None:
        """Commit or abort a transaction."""
        await end_transaction(self.cluster, transaction, commit=commit, timeout_ms=self._timeout_ms)

    async def fence(self, ids: Collection[TransactionalId]) -> None:
        """Abort what is open under these ids, whoever uses them."""
        (await self._admin.fence_producers(ids)).ok()

    async def open_producer(
        self,
        transactional_id: TransactionalId,
        config: ProducerConfig,
        timeout_ms: int | None,
        *,
        may_wait_for_ever: bool,
    ) -> tuple[Producer, bool]:
        """Return a producer that owns its id, and whether its transaction has no timeout.

        Unless a timeout is given, no timeout is requested first if that may be possible, and else
        the longest allowed one.
        """
        if timeout_ms is None and may_wait_for_ever and self._offers_two_phase:
            wanted = replace(
                config, transactional_id=transactional_id, transaction_two_phase_commit_enable=True
            )
            try:
                return await self._initialized(wanted), True
            except KafkaError as error:
                if error.code not in _NO_TWO_PHASE:
                    raise
                self._offers_two_phase = False
        wanted = replace(
            config,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms or await self._longest_timeout_ms(),
        )
        try:
            return await self._initialized(wanted), False
        except KafkaError as error:
            if error.code is not ErrorCode.INVALID_TRANSACTION_TIMEOUT or timeout_ms is not None:
                raise
        self._max_timeout_ms = _MODEST_TIMEOUT_MS
        wanted = replace(wanted, transaction_timeout_ms=_MODEST_TIMEOUT_MS)
        return await self._initialized(wanted), False

    async def _initialized(self, config: ProducerConfig) -> Producer:
        producer = Producer(self.cluster, config, channel=SHARED)
        try:
            await producer.init_transactions()
        except BaseException:
            await producer.close(flush=False)
            raise
        return producer

    async def _longest_timeout_ms(self) -> int:
        """Return the longest timeout that the brokers allow, as far as they report it."""
        if self._max_timeout_ms is None:
            self._max_timeout_ms = _MAX_TIMEOUT_DEFAULT_MS
            resources = [
                ConfigResource(ResourceType.BROKER, str(broker.node_id))
                for broker in await self.cluster.brokers()
            ]
            described = await self._admin.describe_configs(resources, names=(_MAX_TIMEOUT,))
            limits = [
                int(entry.value)
                for entries in described.done.values()
                for entry in entries
                if entry.name == _MAX_TIMEOUT and entry.value is not None
            ]
            if limits:
                self._max_timeout_ms = min(limits)
        return self._max_timeout_ms


def _decoded(value: bytes | None) -> Standing | None:
    return None if value is None else decode_standing(value)


class BrokerLedgerHold:
    """One producer's right to write the ledger."""

    def __init__(
        self,
        producer: Producer,
        ledger: LedgerReader,
        query_id: str,
        standing: Standing | None,
        timeout_ms: int,
    ) -> None:
        self.standing = standing
        self._timeout_ms = timeout_ms
        self._producer = producer
        self._ledger = ledger
        self._query_id = query_id

    async def write(self, standing: Standing) -> None:
        """Write a new standing, and wait until others can read it.

        Otherwise a task that reads it next would still find the previous one.
        """
        self._producer.begin_transaction()
        topic, partition = self._ledger.partition
        sent = await self._producer.send_soon(
            topic, encode_standing(standing), key=self._query_id.encode(), partition=partition
        )
        try:
            await self._producer.commit_transaction()
        except KafkaError as error:
            failure = sent.exception() if sent.done() else None
            is_fenced = isinstance(failure, KafkaError) and failure.code in _FENCED
            if is_fenced or error.code in _ABORTED:
                raise KafkaError(
                    ErrorCode.PRODUCER_FENCED, f"the standing of query {self._query_id}"
                ) from error
            raise
        self.standing = standing
        # It is in effect from here on, whether or not it can be read now.
        with suppress(KafkaError, TimeoutError):
            async with asyncio.timeout(self._timeout_ms / 1000):
                await self._ledger.wait_until_ended((await sent).offset)
