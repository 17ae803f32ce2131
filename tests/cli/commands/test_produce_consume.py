from __future__ import annotations

import signal
import time
from collections.abc import Sequence

import pytest

from dohle.client import Cluster, Producer, run
from dohle.testing.broker import Broker
from tests.cli.running import DEADLINE_S, Command, at_work, dohle, lines
from tests.cli.terminals import run_on_terminal


def test_lines_go_in_and_come_out(command: Command) -> None:
    assert command.out("produce", "plain", stdin=b"one\n\ntwo\nthree without end") == ""
    assert command.out("consume", "plain", "-e") == "one\n\ntwo\nthree without end\n"


def test_keys_headers_and_nulls_go_in_and_come_out(command: Command) -> None:
    command.out(
        "produce",
        "full",
        *("-K", "\\t", "-Z", "-H", "a=1", "-H", "b=", "-H", "c"),
        stdin=b"k1\tv1\nk2\t\nno key\n",
    )
    shown = command.out("consume", "full", "-e", "-f", "%t %p %o %k %K %s %S %h %%\\n")
    headers = "a=1,b=,c=NULL"
    assert shown == (
        f"full 0 0 k1 2 v1 2 {headers} %\n"
        f"full 0 1 k2 2  -1 {headers} %\n"
        f"full 0 2  -1 no key 6 {headers} %\n"
    )
    shown = command.out("consume", "full", "-e", "-K:", "-Z")
    assert shown == "k1:v1\nk2:NULL\nNULL:no key\n"


def test_a_terminal_is_not_given_what_it_would_obey_and_a_file_gets_every_byte(
    command: Command, bootstrap: str
) -> None:
    value = b"a\tb \x1b[31mred\x00 \xff \xc3\xb6"
    command.out("produce", "odd", stdin=value + b"\n")
    shown = run_on_terminal(80, "-b", bootstrap, "consume", "odd", "-e")
    assert [line.expandtabs() for line in shown] == [
        "a       b \\x1b[31mred\\x00 \\xff ö".expandtabs()
    ]
    assert dohle("-b", bootstrap, "consume", "odd", "-e").stdout == value + b"\n"


def test_json_has_all_of_a_record(command: Command) -> None:
    command.out("produce", "as-json", "-K:", "-H", "h=x", stdin=b"k:v\n\xff:\xfe\n")
    first, second = command.json("consume", "as-json", "-e")
    timestamp = first.pop("timestamp")
    assert timestamp > 1_700_000_000_000
    assert first == {
        "topic": "as-json",
        "partition": 0,
        "offset": 0,
        "leaderEpoch": 0,
        "timestampType": "CreateTime",
        "key": {"utf8": "k"},
        "value": {"utf8": "v"},
        "headers": [{"key": "h", "value": {"utf8": "x"}}],
    }
    assert (second["key"], second["value"]) == ({"base64": "/w=="}, {"base64": "/g=="})


def test_a_topic_is_copied_by_a_pipe_byte_for_byte(command: Command, bootstrap: str) -> None:
    async def fill() -> None:
        async with Producer(bootstrap) as producer:
            for number in range(6):
                await producer.send_soon(
                    "copied",
                    [b"plain", b"\xff\x00\n", None][number % 3],
                    key=[None, b"\xfe"][number % 2],
                    partition=number % 2,
                    timestamp=1_700_000_000_000 + number,
                    headers=[("h", b"\xfd"), ("null", None)] if number % 2 else [],
                )

    for name in ("copied", "copy"):
        command.out("topic", "create", name, "--partitions", "2", "--config", "retention.ms=-1")
    run(fill())
    lines_of_json = command.out("consume", "copied", "-e", "--json").encode()
    assert command.out("produce", "copy", "--input", "json", stdin=lines_of_json) == ""

    def contents(topic: str) -> list[list[object]]:
        names = ("partition", "offset", "timestamp", "key", "value", "headers")
        found = command.json("consume", topic, "-e")
        return sorted([each[name] for name in names] for each in found)

    assert contents("copy") == contents("copied")
    assert len(contents("copy")) == 6


def test_a_line_that_is_no_record_is_named_and_those_before_it_are_written(
    command: Command,
) -> None:
    def refused(line: bytes, *options: str) -> str:
        stdin = b'{"value": "first"}\n' + line + b"\n"
        return command.error("produce", "json-slips", "--input", "json", *options, stdin=stdin)

    assert "line 2: it is not JSON" in refused(b"{")
    assert "line 2: it has no value" in refused(b'{"key": "k"}')
    assert "line 2: its key is not base64" in refused(b'{"key": {"base64": "?"}, "value": null}')
    assert "1 partitions and no 7; --ignore-partition" in refused(b'{"value": "x", "partition": 7}')
    assert command.out("consume", "json-slips", "-e") == "first\n" * 4
    far = b'{"value": "far", "partition": 7}\n'
    command.out("produce", "json-slips", "--input", "json", "--ignore-partition", stdin=far)
    assert command.out("consume", "json-slips", "-e", "-o", "-1") == "far\n"


@pytest.mark.parametrize("options", [[], ["-K:"], ["-H", "a=b"]])
def test_large_input_goes_in_large_batches_that_the_topic_takes(
    command: Command, options: list[str]
) -> None:
    topic = f"large{len(options)}{options[0:1] == ['-K:']}"
    command.out("topic", "create", topic, "--config", "max.message.bytes=30000")
    sent = lines(f"{number % 50}:{'x' * 100}{number}" for number in range(2000))
    written = command.json("produce", topic, *options, stdin=sent)
    assert [each["offset"] for each in written] == list(range(2000))
    shown = command.out("consume", topic, "-e", *(["-K:"] if "-K:" in options else []))
    assert shown.encode() == sent


def test_several_topics_are_read_by_name_and_by_patterns(command: Command) -> None:
    for name in ("shop-a", "shop-b", "shopping"):
        command.out("produce", name, stdin=lines([name]))

    def read(*arguments: str) -> list[str]:
        return sorted(command.out("consume", *arguments, "-e").split())

    assert read("shop-a", "shopping", "shop-a") == ["shop-a", "shopping"]
    assert read("--regex", "shop-.*") == ["shop-a", "shop-b"]
    assert read("-r", "shop-a", ".*ping") == ["shop-a", "shopping"]
    assert read("-r", "shop-.*", "--group", "shoppers") == ["shop-a", "shop-b"]
    assert "no topic matches shop;" in command.error("consume", "--regex", "shop", "-e")
    assert "not a regular expression" in command.error("consume", "-r", "(", "-e", code=2)


def test_records_are_filtered_by_patterns_and_by_fields_of_json(command: Command) -> None:
    values = ['{"who": {"name": "ann"}, "n": 1}', '{"who": {"name": "bob"}, "n": 2}', "ann"]
    command.out("produce", "filtered", "-K|", stdin=lines(["k1|" + each for each in values]))

    def read(*arguments: str) -> list[str]:
        return command.out("consume", "filtered", "-e", *arguments).splitlines()

    assert read("--grep", "an+") == [values[0], values[2]]
    assert read("--grep", "^k1$", "--grep", "bob") == [values[1]]
    assert read("--where", "who.name=ann") == [values[0]]
    assert read("--where", "n=2", "--where", "who.name=ann") == []
    assert read("--grep", "ann", "-c", "1") == [values[0]]
    shown = command.out("consume", "filtered", "-e", "-c", "1", "--pretty")
    assert """  "value": {\n    "who": {\n      "name": "ann"\n    },""" in shown


def test_times_are_dates_or_a_while_ago(command: Command, bootstrap: str) -> None:
    command.out("topic", "create", "ago", "--config", "retention.ms=-1")
    now = time.time_ns() // 1_000_000
    run(produce_at(bootstrap, "ago", [1_700_000_000_000, now - 7_200_000, now]))
    assert command.out("consume", "ago", "-e", "-o", "@-1h") == "2\n"
    assert command.out("consume", "ago", "-e", "-o", "@-3h", "-o", "e@-1h") == "1\n"
    assert command.out("consume", "ago", "-o", "e@2023-11-14T22:13:20.001Z") == "0\n"
    assert command.out("consume", "ago", "-e", "-o", "@2023-11-14T22:13:21") == "1\n2\n"


def test_programs_are_told_where_each_record_is(command: Command) -> None:
    written = command.json("produce", "told", stdin=lines(range(5)))
    assert [(one["topic"], one["partition"], one["offset"]) for one in written] == [
        ("told", 0, offset) for offset in range(5)
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_written_and_read(command: Command, codec: str) -> None:
    sent = lines(f"value {number}" for number in range(2000))
    command.out("produce", f"codec-{codec}", "--codec", codec, stdin=sent)
    assert command.out("consume", f"codec-{codec}", "-e").encode() == sent


@pytest.mark.parametrize("options", [["--acks", "0"], ["--acks", "1"], ["--no-idempotent"]])
def test_weaker_promises_can_be_asked_for(command: Command, options: list[str]) -> None:
    topic = f"weaker-{'-'.join(options).strip('-')}"
    command.out("topic", "create", topic)
    command.out("produce", topic, *options, stdin=b"value\n")
    # With acks 0 the producer may be gone before the broker has read the record.
    assert command.out("consume", topic, "-c", "1") == "value\n"


def test_partitions_are_chosen_and_read_one_by_one(command: Command) -> None:
    command.out("topic", "create", "parts", "--partitions", "3")
    for number in range(3):
        command.out("produce", "parts", "-p", str(number), stdin=lines([number]))
    assert command.out("consume", "parts", "-e", "-p", "1") == "1\n"
    assert command.out("consume", "parts", "-e", "-p", "2", "-p", "0", "-f", "%s").strip("02") == ""
    assert sorted(command.out("consume", "parts", "-e").split()) == ["0", "1", "2"]


def test_reading_begins_where_it_is_told_to(command: Command) -> None:
    command.out("produce", "places", stdin=lines(range(10)))

    def read(*arguments: str) -> list[str]:
        return command.out("consume", "places", "-e", *arguments).split()

    assert read("-o", "beginning", "-c", "2") == ["0", "1"]
    assert read("-o", "7") == ["7", "8", "9"]
    assert read("-o", "-2") == ["8", "9"]
    assert read("-o-20") == [str(number) for number in range(10)]
    assert read("-o", "end") == []
    assert read("-o", "10") == []


async def produce_at(bootstrap: str, topic: str, times: Sequence[int]) -> None:
    async with Cluster(bootstrap) as cluster, Producer(cluster) as producer:
        for number, timestamp in enumerate(times):
            await producer.send_soon(topic, b"%d" % number, timestamp=timestamp)


def test_reading_begins_and_ends_at_times(command: Command, bootstrap: str) -> None:
    at = [1_700_000_000_000 + 1000 * number for number in range(3)]
    command.out("topic", "create", "times", "--config", "retention.ms=-1")
    run(produce_at(bootstrap, "times", at))
    assert command.out("consume", "times", "-e", "-o", f"s@{at[1]}") == "1\n2\n"
    assert command.out("consume", "times", "-o", f"e@{at[1]}") == "0\n"
    shown = command.out("consume", "times", "-o", f"s@{at[0] + 1}", "-o", f"e@{at[2]}")
    assert shown == "1\n"
    assert command.out("consume", "times", "-o", f"e@{at[2] + 1}") == "0\n1\n2\n"
    assert command.out("consume", "times", "-e", "-o", f"s@{at[2] + 1}") == ""


def test_uncommitted_and_committed_reads_are_both_possible(command: Command) -> None:
    command.out("produce", "levels", stdin=b"value\n")
    for level in ("read_committed", "read_uncommitted"):
        assert command.out("consume", "levels", "-e", "--isolation-level", level) == "value\n"


def test_an_offset_that_is_not_there_is_an_error(command: Command) -> None:
    command.out("produce", "short", stdin=b"value\n")
    error = command.error("consume", "short", "-o", "5", "-c", "1")
    assert "(OFFSET_OUT_OF_RANGE)" in error


def test_a_topic_or_partition_that_is_not_there_is_told(command: Command) -> None:
    assert "there is no topic never-made" in command.error("consume", "never-made", "-e")
    command.out("topic", "create", "single")
    assert "no 4" in command.error("consume", "single", "-e", "-p", "4")
    error = command.error("produce", "single", "-p", "4", stdin=b"value\n")
    assert "no partition 4" in error


def test_a_record_that_is_too_large_is_told(command: Command) -> None:
    command.out("topic", "create", "small", "--config", "max.message.bytes=1000")
    error = command.error("produce", "small", stdin=b"x" * 5000)
    assert "1 of 1 records were not written" in error
    assert "(MESSAGE_TOO_LARGE)" in error


@pytest.mark.parametrize(
    "arguments",
    [
        ["produce"],
        ["produce", "t", "--codec", "rar"],
        ["produce", "t", "--acks", "2"],
        ["produce", "t", "--acks", "1", "--idempotent"],
        ["produce", "t", "-K", ""],
        ["produce", "t", "-K", "\\q"],
        ["produce", "t", "-H", "=x"],
        ["produce", "t", "-p", "-1"],
        ["consume"],
        ["consume", "t", "-o", "somewhere"],
        ["consume", "t", "-o", "s@noon"],
        ["consume", "t", "-o", "1", "-o", "2"],
        ["consume", "t", "-o", "e@1", "-o", "e@2"],
        ["consume", "t", "-c", "0"],
        ["consume", "t", "-f", "%q"],
        ["consume", "t", "-f", "\\q"],
        ["consume", "t", "-f", "%s", "--json"],
        ["consume", "t", "-f", "%s", "-K:"],
    ],
)
def test_a_wrong_command_line_is_refused(command: Command, arguments: list[str]) -> None:
    _, err = command.run(*arguments, code=2)
    assert "error: " in err


def test_a_topic_that_nobody_creates_is_told_with_advice() -> None:
    with Broker({"auto.create.topics.enable": "false"}) as broker:
        done = dohle("-b", broker.bootstrap, "produce", "unmade", stdin=b"value\n")
    assert done.returncode == 1
    assert b"run `dohle topic create unmade`" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_bytes_pass_unchanged_through_pipes(bootstrap: str) -> None:
    sent = bytes(byte for byte in range(256) if byte != 10) + b"\n"
    done = dohle("-b", bootstrap, "produce", "bytes", stdin=sent)
    assert (done.returncode, done.stderr) == (0, b"")
    done = dohle("-b", bootstrap, "consume", "bytes", "-e")
    assert (done.returncode, done.stdout, done.stderr) == (0, sent, b"")


def test_records_are_printed_as_they_come_until_an_interrupt(
    bootstrap: str, command: Command
) -> None:
    command.out("produce", "endless", stdin=b"first\n")
    with at_work("-b", bootstrap, "consume", "endless") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"
        command.out("produce", "endless", stdin=b"second\n")
        assert process.stdout.readline() == b"second\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE_S)
        assert (process.returncode, out, err) == (130, b"", b"")


def test_a_closed_pipe_ends_reading_without_a_word(bootstrap: str, command: Command) -> None:
    command.out("produce", "long", stdin=lines(f"{number:0100}" for number in range(5000)))
    with at_work("-b", bootstrap, "consume", "long") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"%0100d\n" % 0
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(DEADLINE_S) == 141


def test_an_interrupt_while_waiting_for_input_ends_without_a_word(
    bootstrap: str, command: Command
) -> None:
    with at_work("-b", bootstrap, "--json", "produce", "typed") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"typed\n")
        process.stdin.flush()
        # A line is sent when it is there, not when the input ends.
        assert b'"offset": 0' in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE_S)
        assert (process.returncode, out, err) == (130, b"", b"")
    assert command.out("consume", "typed", "-e") == "typed\n"


def test_a_reader_is_told_at_once_that_the_broker_is_gone() -> None:
    with Broker() as broker:
        address = broker.bootstrap
        dohle("-b", address, "produce", "gone", stdin=b"value\n")
        reading = at_work("-b", address, "consume", "gone")
        process = reading.__enter__()
        assert process.stdout is not None
        assert process.stdout.readline() == b"value\n"
    try:
        assert process.stderr is not None
        told = process.stderr.readline().decode()
    finally:
        reading.__exit__(None, None, None)
    assert told.startswith(f"dohle: warning: no broker can be reached: no connection to {address}")
