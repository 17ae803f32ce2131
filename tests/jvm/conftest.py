"""What the tests of this folder share: the jars, two virtual machines, and two brokers.

Every test that speaks to a broker runs twice: against dohle, and against Apache Kafka, which shows
that what the test expects is what Kafka does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count

import pytest

from tests.interop.process import BrokerProcess
from tests.interop.quick_broker import QUICK
from tests.jvm import oracle
from tests.jvm.apache_kafka import ApacheKafka
from tests.jvm.jvm import Jvm
from tests.jvm.tools import Tools, see

NewName = Callable[[str], str]
NewTopic = Callable[..., str]
NewJvm = Callable[..., Jvm]

_numbers = count(1)


@pytest.fixture(scope="session")
def classpath() -> str:
    try:
        return oracle.classpath()
    except oracle.Unavailable as reason:
        pytest.exit(f"tests/jvm: {reason}", returncode=1)


@pytest.fixture(scope="session")
def jvm(classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jvm]:
    with Jvm(classpath, tmp_path_factory.mktemp("jvm")) as running:
        yield running


@pytest.fixture(scope="session", params=["dohle", "kafka"])
def bootstrap(
    request: pytest.FixtureRequest,
    classpath: str,
    jvm: Jvm,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """The address of a broker that all tests share."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "kafka":
        kafka = ApacheKafka(classpath, folder, QUICK)
        kafka.format(jvm)
        with kafka:
            yield kafka.bootstrap
        return
    with BrokerProcess(folder, QUICK) as dohle:
        yield dohle.bootstrap
        assert dohle.stop() == 0
        assert dohle.failures == []


@pytest.fixture
def tools(jvm: Jvm, bootstrap: str) -> Tools:
    return Tools(jvm, bootstrap)


@pytest.fixture
def new_jvm(classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NewJvm]:
    """Virtual machines for what runs beside the tools."""
    with ExitStack() as machines:

        def start(*options: str) -> Jvm:
            folder = tmp_path_factory.mktemp("jvm")
            return machines.enter_context(Jvm(classpath, folder, options))

        yield start


@pytest.fixture
def new_name(request: pytest.FixtureRequest) -> NewName:
    """Names that nobody has used: ``new_name("group")``."""
    base = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:80].strip("-")
    return lambda kind: f"{base}.{kind}.{next(_numbers)}"


@pytest.fixture
def new_topic(tools: Tools, new_name: NewName) -> NewTopic:
    """Topics: ``new_topic(3)`` has three partitions."""

    def create(partitions: int, *arguments: str) -> str:
        name = new_name("topic")
        tools.topics("--create", "--topic", name, "--partitions", str(partitions), *arguments)
        see(lambda: name in tools.topics("--list").lines, True)
        return name

    return create
