"""A bit of everything that a broker keeps, and how all of it looks from outside.

Each round makes topics of its own, and goes on with the groups and transactional ids of the rounds
before, whichever broker they were served by.
"""

from __future__ import annotations

import json
from tempfile import NamedTemporaryFile

from tests.interop.waiting import wait_until
from tests.jvm.jvm import Jvm
from tests.jvm.tools import Tools

FOREVER = ("--config", "retention.ms=-1")
STAMPED = "message.timestamp.type=LogAppendTime"

#: A config of the topics that Kafka makes by itself, and that dohle does not have.
_UNKNOWN_TO_DOHLE = "unclean.leader.election.enable=false"
_CONFIGURED = ("topics", "brokers", "groups")


class World:
    """What one broker serves."""

    def __init__(self, jvm: Jvm, bootstrap: str) -> None:
        self._jvm = jvm
        self._bootstrap = bootstrap
        self._tools = Tools(jvm, bootstrap)

    def grow(self, number: int) -> None:
        """Do everything once more; the number names the round."""
        self._write_by_every_codec(number)
        self._write_several_segments(number)
        self._commit_and_abort(number)
        for protocol in ("classic", "consumer"):
            self._consume_and_produce(protocol, number)
            self._consume(protocol, number)
        self._leave_open(number)
        self._delete(number)
        self._delete_records(number)
        self._write_at_the_brokers_time(number)
        self._configure(number)

    def _write_by_every_codec(self, number: int) -> None:
        self._run("Codecs", self._topic(f"codecs-{number}", 1, *FOREVER))

    def _write_several_segments(self, number: int) -> None:
        topic = self._topic(f"segments-{number}", 1, "--config", "segment.bytes=1048576")
        self._tools.producer_perf_test(
            *("--topic", topic, "--num-records", "1500", "--record-size", "1500"),
            *("--throughput", "-1"),
        )

    def _commit_and_abort(self, number: int) -> None:
        self._run("Transactions", self._topic(f"transactions-{number}", 2), "transactions")

    def _consume_and_produce(self, protocol: str, number: int) -> None:
        topics = [self._topic(f"{end}-{protocol}-{number}", 1) for end in ("input", "output")]
        self._run("ExactlyOnce", *topics, f"group-{protocol}", protocol)

    def _leave_open(self, number: int) -> None:
        self._run("OpenTransaction", self._topic(f"open-{number}", 1), "open")

    def _delete(self, number: int) -> None:
        topic = self._topic(f"deleted-{number}", 3)
        self._tools.topics("--delete", "--topic", topic)

    def _consume(self, protocol: str, number: int) -> None:
        self._tools.console_consumer(
            *("--topic", f"codecs-{number}", "--from-beginning", "--max-messages", "30"),
            *("--group", f"reader-{protocol}", "--command-property", f"group.protocol={protocol}"),
        )

    def _delete_records(self, number: int) -> None:
        topic = self._topic(f"cut-{number}", 2)
        self._tools.topics("--alter", "--topic", topic, "--partitions", "3")
        self._tools.console_producer("--topic", topic, stdin="value\n" * 5)
        partitions = [{"topic": topic, "partition": each, "offset": -1} for each in range(3)]
        with NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"version": 1, "partitions": partitions}, file)
            file.flush()
            self._tools.delete_records("--offset-json-file", file.name)
        self._tools.console_producer("--topic", topic, stdin="value\n" * 2)

    def _write_at_the_brokers_time(self, number: int) -> None:
        topic = self._topic(f"stamped-{number}", 1, "--config", STAMPED)
        self._tools.console_producer("--topic", topic, stdin="value\n" * 2)

    def _configure(self, number: int) -> None:
        alter = [*("--alter", "--add-config"), f"consumer.session.timeout.ms={50_000 + number}"]
        self._tools.configs(
            *alter, *("--entity-type", "groups", "--entity-name", "reader-consumer")
        )
        alter[-1] = f"log.flush.interval.ms={900_000_000 + number}"
        self._tools.configs(*alter, *("--entity-type", "brokers", "--entity-default"))
        alter[-1] = f"log.retention.ms={900_000_000 + number}"
        self._tools.configs(*alter, *("--entity-type", "brokers", "--entity-name", "1"))

    def _topic(self, name: str, partitions: int, *arguments: str) -> str:
        self._tools.topics(
            *("--create", "--topic", name, "--partitions", str(partitions), *arguments)
        )
        wait_until(lambda: name in self._tools.topics("--list").lines)
        return name

    def _run(self, main: str, *arguments: str) -> list[str]:
        ran = self._jvm.run(main, self._bootstrap, *arguments)
        assert ran.code == 0, ran
        return ran.lines

    def await_coordinators(self, groups: list[str]) -> None:
        """Wait until these groups are there: a broker that has just started still loads them."""
        wait_until(lambda: self.groups() == groups)

    def groups(self) -> list[str]:
        """Return the names of all groups."""
        return sorted(self._tools.consumer_groups("--list").lines)

    def await_compaction(self, records_max: int) -> None:
        """Wait until the log cleaner has left no more than so many records."""
        wait_until(lambda: len(self.records()) <= records_max)

    def records(self) -> list[str]:
        """Return every record, once for each isolation level that shows it."""
        return self._run("ReadAll")

    def _configs(self, kind: str) -> list[str]:
        """Return what was configured, each config behind the line that says whose it is."""
        configs = []
        owner = ""
        for line in self._tools.configs("--describe", "--entity-type", kind).lines:
            if not line.startswith(" "):
                owner = line
            elif _UNKNOWN_TO_DOHLE not in line:
                configs.append(f"{owner} {line}")
        return sorted(configs)

    def seen(self) -> dict[str, list[str]]:
        """Return all that a client can see, in an order that does not depend on the broker."""
        tools = self._tools
        groups = [
            *tools.consumer_groups("--list", "--state").lines,
            *tools.consumer_groups("--list", "--type").lines,
            *tools.consumer_groups("--describe", "--all-groups", "--offsets", "--verbose").lines,
        ]
        offsets = [
            line
            for time in ("earliest", "latest", "max-timestamp")
            for line in tools.get_offsets("--time", time).lines
        ]
        return {
            "topics": sorted(map(_comparable, tools.topics("--describe").lines)),
            "configs": [line for kind in _CONFIGURED for line in self._configs(kind)],
            "offsets": offsets,
            "groups": sorted(groups),
            "transactions": sorted(tools.transactions("list").lines),
            "records": self.records(),
        }


def _comparable(line: str) -> str:
    """Sort the configs at the end of a line of kafka-topics."""
    head, label, configs = line.partition("\tConfigs: ")
    kept = sorted(config for config in configs.split(",") if config != _UNKNOWN_TO_DOHLE)
    return f"{head}{label}{','.join(kept)}"
