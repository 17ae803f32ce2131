"""The queue to another broker outlives whatever it leads to."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path

from dohle.client.net.connection import Connection
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId
from dohle.server.node import Node
from dohle.server.transactions.broker_queues import BrokerQueues
from tests.client.scripted_broker import until
from tests.server.wire import Wire, on_node

NOBODY = BrokerId(77)


class Unsteady:
    """Does not take in the first failure."""

    def __init__(self) -> None:
        self.told: list[tuple[str, ErrorCode]] = []

    def take(self, waiting: deque[str]) -> list[str]:
        raise AssertionError("nobody was reached")

    async def send(self, connection: Connection, batch: Sequence[str]) -> None:
        raise AssertionError("nobody was reached")

    def failed(self, batch: Sequence[str], error: KafkaError) -> None:
        self.told += [(item, error.code) for item in batch]
        if len(self.told) == 1:
            raise RuntimeError("not expected")


def test_a_failure_that_is_not_taken_in_does_not_end_the_queue(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        sender = Unsteady()
        queues = BrokerQueues(node.broker, "test", sender)
        queues.put(NOBODY, "first")
        await until(lambda: len(sender.told) == 1)
        queues.put(NOBODY, "second")
        await until(lambda: len(sender.told) == 2)
        unreached = ErrorCode.NETWORK_EXCEPTION
        assert sender.told == [("first", unreached), ("second", unreached)]
        await queues.stop()

    on_node(tmp_path, scenario)
