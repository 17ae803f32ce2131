"""Kafka's command line tools, each by the name of its script, against one broker."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tests.interop.waiting import DEADLINE_S, wait_until
from tests.jvm.jvm import Jvm, Ran

T = TypeVar("T")

_TOOLS = "org.apache.kafka.tools"


def see(look: Callable[[], T], expected: T) -> None:
    """See what is expected, if not at once: a broker hears of a change after its controller."""
    seen: list[T] = []

    def is_seen() -> bool:
        seen.append(look())
        return seen[-1] == expected

    try:
        wait_until(is_seen, DEADLINE_S)
    except AssertionError:
        assert seen[-1] == expected
        raise


class Tools:
    """The tools, run in a shared virtual machine; one that fails fails the test."""

    def __init__(self, jvm: Jvm, bootstrap: str, option: str = "--bootstrap-server") -> None:
        self.bootstrap = bootstrap
        self._jvm = jvm
        self._option = option

    def _run(self, main: str, *arguments: str, stdin: str = "") -> Ran:
        ran = self.attempt(main, *arguments, stdin=stdin)
        assert ran.code == 0, ran
        return ran

    def attempt(self, main: str, *arguments: str, stdin: str = "") -> Ran:
        """Run a tool by its class, whatever becomes of it."""
        return self._jvm.run(main, self._option, self.bootstrap, *arguments, stdin=stdin)

    def topics(self, *arguments: str) -> Ran:
        return self._run(f"{_TOOLS}.TopicCommand", *arguments)

    def configs(self, *arguments: str) -> Ran:
        return self._run("kafka.admin.ConfigCommand", *arguments)

    def console_producer(self, *arguments: str, stdin: str) -> Ran:
        return self._run(f"{_TOOLS}.ConsoleProducer", *arguments, stdin=stdin)

    def console_consumer(self, *arguments: str) -> Ran:
        return self._run(f"{_TOOLS}.consumer.ConsoleConsumer", *arguments)

    def consumer_groups(self, *arguments: str) -> Ran:
        return self._run(f"{_TOOLS}.consumer.group.ConsumerGroupCommand", *arguments)

    def groups(self, *arguments: str) -> Ran:
        return self._run(f"{_TOOLS}.GroupsCommand", *arguments)

    def get_offsets(self, *arguments: str) -> Ran:
        return self._run(f"{_TOOLS}.GetOffsetShell", *arguments)

    def delete_records(self, *arguments: str) -> Ran:
        return self._run(f"{_TOOLS}.DeleteRecordsCommand", *arguments)

    def log_dirs(self, *arguments: str) -> Ran:
        return self._run(f"{_TOOLS}.LogDirsCommand", *arguments)

    def transactions(self, *arguments: str) -> Ran:
        return self._run(f"{_TOOLS}.TransactionsCommand", *arguments)

    def metadata_quorum(self, *arguments: str) -> Ran:
        return self._run(f"{_TOOLS}.MetadataQuorumCommand", *arguments)

    def broker_api_versions(self) -> Ran:
        return self._run(f"{_TOOLS}.BrokerApiVersionsCommand")

    def features(self, *arguments: str) -> Ran:
        return self._run(f"{_TOOLS}.FeatureCommand", *arguments)

    def cluster(self, action: str, *arguments: str) -> Ran:
        """Run kafka-cluster, whatever becomes of it."""
        server = (self._option, self.bootstrap)
        return self._jvm.run(f"{_TOOLS}.ClusterTool", action, *server, *arguments)

    def leader_election(self, *arguments: str) -> Ran:
        return self._run(f"{_TOOLS}.LeaderElectionCommand", *arguments)

    def producer_perf_test(self, *arguments: str) -> Ran:
        return self._run(f"{_TOOLS}.ProducerPerformance", *arguments)

    def consumer_perf_test(self, *arguments: str) -> Ran:
        return self._run(f"{_TOOLS}.ConsumerPerformance", *arguments)

    def e2e_latency(self, *arguments: str) -> Ran:
        return self._run(f"{_TOOLS}.EndToEndLatency", *arguments)


def levels(tools: Tools) -> dict[str, str]:
    """Return the finalized levels of features."""
    ran = tools.features("describe")
    return dict(re.findall(r"Feature: (\S+)\t.*FinalizedVersionLevel: (\S+)", ran.out))


def directory_id(data: Path) -> str:
    """Return the id of a data directory."""
    (found,) = re.findall(r"^directory.id=(.*)$", (data / "meta.properties").read_text(), re.M)
    return str(found)
