"""The tools that write, read, measure and delete records."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.jvm.conftest import NewName, NewTopic
from tests.jvm.jvm import run_alone
from tests.jvm.tools import Tools, see


def test_the_console_tools_write_and_read_keys_and_headers(
    tools: Tools, new_topic: NewTopic
) -> None:
    topic = new_topic(4)
    read = [f"parse.{part}=true" for part in ("key", "headers")]
    tools.console_producer(
        *("--topic", topic, "--compression-codec", "zstd"),
        *(option for name in read for option in ("--reader-property", name)),
        stdin="h:1,i:2\tx\t1\nh:3\ty\t2\n",
    )
    shown = [f"print.{part}=true" for part in ("key", "headers", "partition", "offset")]
    ran = tools.console_consumer(
        *("--topic", topic, "--from-beginning", "--max-messages", "2"),
        *(option for name in shown for option in ("--formatter-property", name)),
    )
    assert sorted(ran.lines) == [
        "Partition:0\tOffset:0\th:3\ty\t2",
        "Partition:2\tOffset:0\th:1,i:2\tx\t1",
    ]


def test_offsets_are_looked_up_by_every_kind_of_time(tools: Tools, new_topic: NewTopic) -> None:
    topic = new_topic(4)
    tools.console_producer(
        *("--topic", topic, "--reader-property", "parse.key=true"),
        stdin="x\t1\ny\t2\n",
    )
    for time, ends in [
        ("latest", {0: 1, 1: 0, 2: 1, 3: 0}),
        ("earliest", {0: 0, 1: 0, 2: 0, 3: 0}),
        ("max-timestamp", {0: 0, 2: 0}),
        ("1700000000000", {0: 0, 2: 0}),
        ("earliest-local", {0: 0, 1: 0, 2: 0, 3: 0}),
    ]:
        ran = tools.get_offsets("--topic", topic, "--time", time)
        assert ran.lines == [f"{topic}:{number}:{offset}" for number, offset in ends.items()]


def test_records_are_deleted_below_an_offset(
    tools: Tools, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(2)
    tools.console_producer("--topic", topic, stdin="value\n" * 5)
    ends = dict(line.rsplit(":", 1) for line in tools.get_offsets("--topic", topic).lines)
    request = {
        "version": 1,
        "partitions": [{"topic": topic, "partition": number, "offset": -1} for number in range(2)],
    }
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps(request))
    ran = tools.delete_records("--offset-json-file", str(file))
    watermarks = dict(re.findall(r"partition: (\S+)\tlow_watermark: (\d+)", ran.out))
    assert watermarks == {name.replace(":", "-"): end for name, end in ends.items()}
    after = tools.get_offsets("--topic", topic, "--time", "earliest").lines
    assert after == [f"{name}:{end}" for name, end in ends.items()]


def test_log_directories_are_described(tools: Tools, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    tools.console_producer("--topic", topic, stdin="value\n")

    def partitions() -> list[dict[str, Any]]:
        ran = tools.log_dirs("--describe", "--topic-list", topic, "--broker-list", "1")
        *_, text = ran.lines
        (broker,) = json.loads(text)["brokers"]
        (directory,) = broker["logDirs"]
        assert directory["error"] is None
        return list(directory["partitions"])

    names = [f"{topic}-0", f"{topic}-1"]
    see(lambda: sorted(each["partition"] for each in partitions()), names)
    assert sorted(each["size"] > 0 for each in partitions()) == [False, True]
    assert {each["offsetLag"] for each in partitions()} == {0}


def test_the_verifiable_clients_agree(
    tools: Tools, new_topic: NewTopic, new_name: NewName, classpath: str
) -> None:
    topic = new_topic(3)
    base = ["--bootstrap-server", tools.bootstrap, "--topic", topic, "--max-messages", "500"]
    wrote = run_alone(classpath, "org.apache.kafka.tools.VerifiableProducer", *base)
    assert wrote.code == 0, wrote
    done = json.loads(wrote.lines[-1])
    assert (done["name"], done["sent"], done["acked"]) == ("tool_data", 500, 500)
    read = run_alone(
        *(classpath, "org.apache.kafka.tools.VerifiableConsumer", *base, "--verbose"),
        *("--group-id", new_name("group"), "--reset-policy", "earliest"),
    )
    assert read.code == 0, read
    events = [json.loads(line) for line in read.lines]
    values = [int(event["value"]) for event in events if event["name"] == "record_data"]
    assert sorted(values) == list(range(500))
    assert all(event["success"] for event in events if event["name"] == "offsets_committed")


def test_the_performance_tools_measure(tools: Tools, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    ran = tools.producer_perf_test(
        *("--topic", topic, "--num-records", "20000", "--record-size", "100"),
        *("--throughput", "-1", "--command-property", "compression.type=lz4"),
    )
    assert ran.lines[-1].startswith("20000 records sent, ")
    ran = tools.consumer_perf_test("--topic", topic, "--num-records", "20000")
    assert ran.lines[-1].split(", ")[4] == "20000"
    ran = tools.e2e_latency(
        *("--topic", new_topic(1), "--num-records", "20"),
        *("--producer-acks", "all", "--record-size", "100"),
    )
    assert "Percentiles" in ran.lines[-1]
