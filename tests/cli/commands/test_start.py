from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from dohle.cli.main import main
from dohle.storage.directory.clean_shutdown import has_clean_shutdown
from dohle.storage.directory.meta_properties import read_meta_properties
from dohle.storage.files import OsFileSystem
from tests.cli.dump.files import CLUSTER_ID, Node, orders
from tests.cli.running import STARTED, Started, dohle, lines

# What the server.properties of a Kafka that was just unpacked sets.
STOCK_PROPERTIES = """\
# a comment
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,\\
  SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_broker_starts_tells_where_it_is_and_stops_cleanly(tmp_path: Path) -> None:
    with Started(cwd=tmp_path) as started:
        cluster_id = read_meta_properties(OsFileSystem(), str(tmp_path / "data")).cluster_id
        assert started.shown[0].endswith(f", node 1 of cluster {cluster_id}\n")
        assert started.field("data") == "./data"
        assert started.shown[-1] == STARTED
        assert started.stop() == 0
        assert " INFO server: node 1 of cluster" in started.log
    assert has_clean_shutdown(OsFileSystem(), str(tmp_path / "data"))


def test_the_commands_it_proposes_work(tmp_path: Path) -> None:
    with Started(cwd=tmp_path) as started:
        produce, consume = [line.split() for line in started.shown if " dohle " in line]
        assert produce[:4] == ["echo", "hello", "|", "dohle"]
        assert dohle(*produce[4:], stdin=b"hello\n").returncode == 0
        assert consume[0] == "dohle"
        assert dohle(*consume[1:]).stdout == b"hello\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_an_interrupt_and_a_closed_terminal_stop_it_cleanly_too(
    tmp_path: Path, number: signal.Signals
) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("this process ignores it, as under nohup, and so does what it starts")
    with Started(cwd=tmp_path) as started:
        assert started.stop(number) == 0
    assert has_clean_shutdown(OsFileSystem(), str(tmp_path / "data"))


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    sent = lines(range(1000))
    with Started(cwd=tmp_path) as started:
        assert dohle("-b", started.bootstrap, "produce", "kept", stdin=sent).returncode == 0
        assert started.stop(signal.SIGKILL) == -signal.SIGKILL
    with Started(cwd=tmp_path) as started:
        assert dohle("-b", started.bootstrap, "consume", "kept", "-e").stdout == sent
        assert started.stop() == 0
    with Started(cwd=tmp_path) as started:
        assert dohle("-b", started.bootstrap, "consume", "kept", "-e").stdout == sent


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    with Started(cwd=tmp_path) as started:
        done = dohle("start", "--listener", "127.0.0.1:0", cwd=tmp_path)
        assert done.returncode == 1
        assert done.stdout == b""
        assert done.stderr.startswith(b"dohle: error: ")
        assert b"./data is in use by another process" in done.stderr
        assert done.stderr.count(b"\n") == 1
        assert started.stop() == 0


def test_an_address_of_another_machine_is_refused_as_such(tmp_path: Path) -> None:
    # 192.0.2.0/24 is for documentation: no machine has it (RFC 5737).
    where = "192.0.2.1:9092"
    done = dohle("start", "--listener", where, "--log-level", "error", cwd=tmp_path)
    assert done.returncode == 1
    error = done.stderr.decode()
    assert error.startswith(f"dohle: error: cannot listen on {where}: ")
    assert "this machine has no such address" in error


def test_a_port_in_use_is_refused(tmp_path: Path, taken_port: int) -> None:
    where = f"127.0.0.1:{taken_port}"
    done = dohle("start", "--listener", where, "--log-level", "error", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout == b""
    error = done.stderr.decode()
    assert error.startswith(f"dohle: error: cannot listen on {where}")
    assert error.count("\n") == 1


def test_an_ephemeral_broker_leaves_nothing_behind(tmp_path: Path) -> None:
    with Started("--ephemeral", cwd=tmp_path) as started:
        path, _, note = started.field("data").partition(" ")
        assert note == "(removed at the end)"
        assert os.path.exists(os.path.join(path, "meta.properties"))
        assert started.stop() == 0
    assert not os.path.exists(path)
    assert not (tmp_path / "data").exists()


def test_the_file_of_a_stock_kafka_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text(STOCK_PROPERTIES)
    with Started("--config", "server.properties", "--log-level", "error", cwd=tmp_path) as started:
        assert started.field("data") == "kraft-combined-logs"
        assert started.stop() == 0
        assert started.log == ""


def test_configs_without_effect_are_named_on_demand_and_unknown_ones_always(
    tmp_path: Path,
) -> None:
    properties = "num.io.threads=8\nlog.segment.byte=1\n"
    (tmp_path / "server.properties").write_text(properties)
    arguments = ("--config", "server.properties", "--log-level", "error")
    warning = (
        "dohle: warning: log.segment.byte is not a known configuration, "
        "did you mean log.segment.bytes?\n"
    )
    with Started(*arguments, cwd=tmp_path) as started:
        assert started.log == warning
    with Started(*arguments, "-v", cwd=tmp_path) as started:
        note, said = started.log.splitlines(keepends=True)
        assert note.startswith("dohle: note: num.io.threads has no effect in dohle: ")
        assert said == warning


def test_options_win_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("num.partitions=2\nlog.dirs=of-the-file\n")
    with Started(
        *("--config", "server.properties", "--data", "one", "--data", "two"),
        *("-X", "num.partitions=5", "--node-id", "7"),
        cwd=tmp_path,
    ) as started:
        assert started.field("data") == "one, two"
        assert ", node 7 of cluster" in started.shown[0]
        dohle("-b", started.bootstrap, "topic", "create", "five")
        described = dohle("-b", started.bootstrap, "--json", "topic", "describe", "five").stdout
        assert len(json.loads(described)["partitions"]) == 5
    assert not (tmp_path / "of-the-file").exists()


def test_the_node_id_of_the_directory_is_taken_if_none_is_given(tmp_path: Path) -> None:
    assert main(["storage", "format", "--data", str(tmp_path / "data"), "--node-id", "42"]) == 0
    with Started(cwd=tmp_path) as started:
        assert ", node 42 of cluster" in started.shown[0]


def test_the_log_can_be_json_and_tell_of_each_request(tmp_path: Path) -> None:
    with Started("--log-format", "json", "--request-log", cwd=tmp_path) as started:
        dohle("-b", started.bootstrap, "topic", "list")
        assert started.stop() == 0
        logged = [json.loads(line) for line in started.log.splitlines()]
    assert all(line.keys() == {"time", "level", "logger", "message"} for line in logged)
    requests = [line["message"] for line in logged if line["logger"] == "dohle.request"]
    assert any("MetadataRequest" in message for message in requests)
    assert all("dohle-cli" in message for message in requests)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["-X", "num.partitions=many"], ["num.partitions", "many"]),
        (["-X", "node.id=-5"], ["node.id", "-5"]),
        (["-X", "process.roles=boss"], ["process.roles", "boss"]),
        (["--listener", "nonsense"], ["nonsense"]),
        (["--config", "server.properties"], ["log.segment.bytes", "tiny"]),
    ],
)
def test_a_wrong_value_is_refused_by_name(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    named: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("server.properties").write_text("log.segment.bytes=tiny\n")
    assert main(["start", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("dohle: error: ")
    for text in named:
        assert text in err
    assert not Path("data").exists()


def test_all_wrong_values_are_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=0\nlog.segment.bytes=tiny\n")
    assert main(["start", "--config", str(path)]) == 2
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 2
    assert all(line.startswith("dohle: error: ") for line in err)


def test_a_file_that_is_not_there_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "none.properties"
    assert main(["start", "--config", str(path)]) == 2
    assert capsys.readouterr().err == f"dohle: error: {path}: No such file or directory\n"


def refused(tmp_path: Path, *arguments: str) -> str:
    """Run a start that must fail with one line, and return that."""
    done = dohle(
        *("start", "--listener", "127.0.0.1:0", "--data", str(tmp_path), "--log-level", "error"),
        *arguments,
    )
    assert done.returncode == 1
    assert done.stdout == b""
    assert b"Traceback" not in done.stderr
    return done.stderr.decode().splitlines()[-1]


def test_the_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    orders(tmp_path)
    error = refused(tmp_path, "--node-id", "2")
    assert error.startswith(f"dohle: error: {tmp_path}/meta.properties has node.id 1, but 2")


def test_directories_of_two_clusters_are_refused(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    Node(one).close()
    assert main(["storage", "format", "--data", str(two)]) == 0
    error = refused(one, "--data", str(two))
    assert f"but {CLUSTER_ID} is expected" in error


def test_a_broken_meta_properties_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=9\n")
    assert "version 9 is unknown" in refused(tmp_path)


def test_a_directory_that_cannot_be_one_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file"
    path.write_text("")
    for place in (path, path / "below"):
        assert main(["start", "--data", str(place)]) == 1
        assert capsys.readouterr() == (
            "",
            f"dohle: error: no data directory is usable: {place}: Not a directory\n",
        )


def test_a_metadata_log_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    with Started("--data", str(tmp_path), cwd=tmp_path) as started:
        assert started.stop() == 0
    (tmp_path / "__cluster_metadata-0" / "quorum-state").write_text("nonsense")
    assert "quorum-state is damaged" in refused(tmp_path)


def test_a_damaged_bootstrap_checkpoint_is_told_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "bootstrap.checkpoint"
    path.write_bytes(b"nonsense" * 9)
    assert f"{path} is damaged" in refused(tmp_path)


def test_what_nobody_foresaw_is_one_line_too_and_shows_where_on_demand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A machine that cannot tell how much room is left on a disk.
    (tmp_path / "sitecustomize.py").write_text("import os\nos.statvfs = None\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    data = tmp_path / "data"
    assert "could not start: " in refused(data)
    done = dohle(
        *("start", "--listener", "127.0.0.1:0", "--data", str(data), "--log-level", "debug")
    )
    assert b"Traceback" in done.stderr


def test_a_metadata_log_in_a_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "meta.properties").write_text("version=1\nnode.id=9\ncluster.id=other\n")
    said = refused(tmp_path / "data", "-X", f"metadata.log.dir={elsewhere}")
    assert "elsewhere/meta.properties has node.id 9, but 1 is expected" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-X", "log.segment.byte=1"], "did you mean log.segment.bytes?"),
        (["-X", "flux.capacitor=1"], "-X flux.capacitor is not a known configuration"),
        (["--config", "zookeeper.properties"], "is of a Kafka in ZooKeeper mode"),
        (["--listener", "0.0.0.0:0"], "--advertised"),
        (["--listener", "0.0.0.0:0"], "-X advertised.listeners=PLAINTEXT://HOST:PORT"),
    ],
)
def test_a_start_that_cannot_be_meant_is_refused_with_a_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("zookeeper.properties").write_text(
        "broker.id=0\nlog.dirs=data\nzookeeper.connect=localhost:2181\n"
    )
    assert main(["start", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.startswith("dohle: error: ")
    assert err.count("\n") == 1
    assert not Path("data").exists()


def test_a_config_that_has_no_effect_is_no_reason_to_refuse(tmp_path: Path) -> None:
    with Started("-X", "num.io.threads=8", cwd=tmp_path) as started:
        assert started.stop() == 0


def test_clients_are_told_the_advertised_address(tmp_path: Path) -> None:
    arguments = ("--listener", "0.0.0.0:0", "--advertised", "127.0.0.1")
    with Started(*arguments, cwd=tmp_path) as started:
        assert started.bootstrap.startswith("127.0.0.1:")
        assert dohle("-b", started.bootstrap, "produce", "t", stdin=b"v\n").returncode == 0
        assert dohle("-b", started.bootstrap, "consume", "t", "-e").stdout == b"v\n"
        assert started.stop() == 0


def test_a_broker_tells_how_it_is_on_the_port_that_it_names(tmp_path: Path) -> None:
    with Started(cwd=tmp_path) as started:
        metrics = started.field("metrics")
        with urlopen(metrics.replace("/metrics", "/readyz"), timeout=20) as answer:
            assert answer.read() == b"ok\n"
        dohle("topic", "create", "orders", "-b", started.bootstrap)
        with urlopen(metrics, timeout=20) as answer:
            assert b'kafka_topic_partitions{topic="orders"} 1\n' in answer.read()
