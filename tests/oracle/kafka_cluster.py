"""Three nodes of Apache Kafka, in processes of their own, as ``layout`` has them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from dohle.core.ids import Uuid
from dohle.core.uuid import uuid_to_text
from tests.jvm import oracle
from tests.jvm.apache_kafka import ApacheKafka, format_storage
from tests.jvm.jvm import Jvm
from tests.oracle.layout import CLUSTER_ID, NODES, Listeners
from tests.ports import free_ports


@contextmanager
def three_kafkas(*, has_static_voters: bool = False) -> Iterator[Listeners]:
    """Run them for as long as the block lasts, and tell where they listen."""
    classpath = oracle.classpath()
    ports = free_ports(2 * len(NODES))
    brokers, controllers = (
        {node: f"127.0.0.1:{port}" for node, port in zip(NODES, some, strict=True)}
        for some in (ports[: len(NODES)], ports[len(NODES) :])
    )
    listeners = Listeners(brokers, controllers, has_static_voters)
    is_dynamic = not has_static_voters
    voters = ",".join(
        f"{node}@{address}:{uuid_to_text(Uuid(bytes([node]) * 16))}"
        for node, address in controllers.items()
    )
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        nodes = []
        for node in NODES:
            (folder / str(node)).mkdir()
            config = listeners.properties(node)
            nodes.append(ApacheKafka(classpath, folder / str(node), config, standalone=is_dynamic))
        initial = ("--initial-controllers", voters) if is_dynamic else ()
        with Jvm(classpath, folder) as jvm:
            for each in nodes:
                format_storage(jvm, each.properties, CLUSTER_ID, *initial)
        for each in nodes:
            stack.push(each.__exit__)
        with ThreadPoolExecutor(len(nodes)) as threads:
            list(threads.map(ApacheKafka.start, nodes))
        yield listeners
