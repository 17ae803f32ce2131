"""One Spark session and one broker for all tests of this folder, and topics of their own.

A session takes seconds to start and half a gigabyte to run, so all tests that have it share one:
they carry a group by which pytest-xdist keeps them in one process. Tests that start a Spark of
their own have the group ``spark-processes``: one after the other, beside the session. All others
run anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import dohle.spark
from dohle.client import Admin, Cluster, NewTopic, run
from dohle.testing import Broker

NewTopicName = Callable[..., str]

_HERE = Path(__file__).parent

#: Said once by whatever of pyspark 4.3 touches Arrow first, if pandas 3 is installed.
_PANDAS_3 = "ignore:PySpark does not yet fully support pandas:FutureWarning"

_numbers = count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            if "spark" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.xdist_group("spark"))
            item.add_marker(pytest.mark.filterwarnings(_PANDAS_3))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    config = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
    }
    session = dohle.spark.session("tests", "local[2]", config)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker({"log.retention.ms": "-1"}) as running:
        yield running


@pytest.fixture
def new_topic(broker: Broker, request: pytest.FixtureRequest) -> NewTopicName:
    """Create topics: ``new_topic(partitions=3)``."""

    def create(partitions: int = 1, **configs: str) -> str:
        name = f"{re.sub(r'[^a-z0-9]+', '-', request.node.name.lower())[:150]}.{next(_numbers)}"
        topic = NewTopic(
            name,
            partitions=partitions,
            configs={key.replace("_", "."): value for key, value in configs.items()},
        )

        async def work() -> None:
            async with Cluster(broker.bootstrap) as cluster:
                (await Admin(cluster).create_topics([topic])).ok()

        run(work())
        return name

    return create


@pytest.fixture
def topic(new_topic: NewTopicName) -> str:
    """A new topic with one partition."""
    return new_topic()
