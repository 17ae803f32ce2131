"""Transactional producers, by hand, and what readers see of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dohle.records.builder import BatchBuilder
from tests.oracle.scenario import Client, Run, Topic

TIME_MS = 1_600_000_000_000
CONCURRENT = 51


@dataclass
class Producer:
    """A transactional producer, which knows its id and its epoch."""

    client: Client
    name: str
    id: int
    epoch: int

    @property
    def who(self) -> dict[str, Any]:
        """The fields that say who it is."""
        return {"transactional_id": self.name, "producer_id": self.id, "producer_epoch": self.epoch}

    def batch(self, *values: bytes, sequence: int = 0, **more: Any) -> bytes:
        """Return a batch of its own."""
        own = {"producer_id": self.id, "producer_epoch": self.epoch, "is_transactional": True}
        builder = BatchBuilder(**{**own, "base_sequence": sequence, **more})
        for value in values:
            builder.append(TIME_MS, None, value)
        return bytes(builder.build())

    async def produce(
        self, version: int, topic: Topic, records: bytes, partition: int = 0, note: str = ""
    ) -> Any:
        """Write a batch."""
        data = {**topic.both, "partition_data": [{"index": partition, "records": records}]}
        return await self.client.send(
            *("Produce", version),
            note=note,
            transactional_id=self.name,
            acks=-1,
            timeout_ms=5000,
            topic_data=[data],
        )

    async def add(self, version: int, *topics: dict[str, Any], note: str = "", **more: Any) -> Any:
        """Add partitions to the transaction."""
        if version >= 4:
            body: dict[str, Any] = {"transactions": [{**self.who, "topics": [*topics], **more}]}
        else:
            who = {f"v3_and_below_{key}": value for key, value in self.who.items()}
            body = {**who, "v3_and_below_topics": [*topics]}
        return await self.client.send("AddPartitionsToTxn", version, note=note, **body)

    async def end(self, version: int, *, commit: bool, note: str = "", **more: Any) -> Any:
        """End the transaction; from version 5 on, take the next epoch."""
        answer = await self.client.send(
            "EndTxn", version, note=note, **{**self.who, "committed": commit, **more}
        )
        if version >= 5 and not answer.error_code:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
        return answer

    async def is_over(self, state: str, note: str = "") -> None:
        """Wait for a state of the transaction."""
        await self.client.until(
            *(
                "DescribeTransactions",
                0,
                lambda r: r.transaction_states[0].transaction_state == state,
            ),
            note=note,
            transactional_ids=[self.name],
        )


async def producer(run: Run, name: str, version: int = 5, timeout_ms: int = 60_000) -> Producer:
    """Begin a transactional producer, by one step."""
    client = await run.client()
    transactional_id = await run.transactional_id(name)
    answer = await client.until(
        *("InitProducerId", version, lambda r: r.error_code != CONCURRENT),
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
    )
    return Producer(client, transactional_id, answer.producer_id, answer.producer_epoch)


def partitions(topic: Topic, *numbers: int) -> dict[str, Any]:
    """Return partitions of a topic as AddPartitionsToTxn wants them."""
    return {"name": topic.name, "partitions": [*numbers]}


async def see(run: Run, topic: Topic, note: str, partition: int = 0) -> None:
    """Read a partition from its start in both isolation levels."""
    client = await run.client("reader")
    for level, name in enumerate(("uncommitted", "committed")):
        asked = {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        await client.send(
            *("Fetch", 12),
            note=f"{note}, {name}",
            replica_id=-1,
            max_bytes=1 << 20,
            isolation_level=level,
            topics=[{"topic": topic.name, "partitions": [asked]}],
        )


def committed(topic: str, offset: int, **more: Any) -> list[dict[str, Any]]:
    """Return the topics of a TxnOffsetCommit: an offset of partition 0."""
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    return [{"name": topic, "partitions": [{**partition, **more}]}]
