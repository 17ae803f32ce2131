"""A metadata log that lost something: the broker refuses to start, and what it proposes works."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dohle.cli.main import main
from dohle.client import Admin, Cluster, NewTopic, Producer, ProducerConfig
from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName
from dohle.storage.directory.meta_properties import read_meta_properties
from dohle.storage.files import OsFileSystem
from dohle.testing.broker import Broker
from tests.cli.running import Started, dohle
from tests.server.wire import Wire, batch, produce

METADATA = "__cluster_metadata-0"
SEGMENT = f"{METADATA}/00000000000000000000.log"
CLEAN = ".kafka_cleanshutdown"
TRANSACTION = ProducerConfig(transactional_id="pay")


async def fill(bootstrap: str) -> None:
    async with Cluster(bootstrap) as cluster:
        await Admin(cluster).create_topics(
            [
                NewTopic("orders", partitions=3, configs={"retention.ms": "123456789"}),
                NewTopic("small"),
            ]
        )
        async with Producer(cluster) as producer:
            for number in range(30):
                await producer.send_soon("orders", b"%d" % number, partition=number % 3)
            await producer.send_soon("small", b"one")
        async with Producer(cluster, TRANSACTION) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.send_soon("small", b"two")
            await producer.commit_transaction()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory that was closed cleanly, with records, a transaction and their metadata."""
    path = tmp_path_factory.mktemp("filled") / "data"
    with Broker({"transaction.state.log.num.partitions": "2"}, data=str(path)) as broker:
        asyncio.run(fill(broker.bootstrap))
    return path


@pytest.fixture
def data(filled: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(filled, tmp_path / "data"))


def remove(data: Path) -> None:
    shutil.rmtree(data / METADATA)


def empty(data: Path) -> None:
    for path in (data / METADATA).iterdir():
        path.write_bytes(b"")


def cut(data: Path) -> None:
    log = data / SEGMENT
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 3])


def cut_after_a_kill(data: Path) -> None:
    (data / CLEAN).unlink()
    cut(data)


def damage(data: Path) -> None:
    """Spoil the batch with which a topic was created; there are others before and behind it."""
    log = data / SEGMENT
    content = bytearray(log.read_bytes())
    content[content.index(b"__transaction_state")] ^= 1
    log.write_bytes(content)


LOSSES = [remove, empty, cut, cut_after_a_kill, damage]


def content(data: Path) -> dict[str, bytes]:
    files = (path for path in data.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(data)): path.read_bytes() for path in files}


def start(data: Path, *arguments: str) -> Any:
    return dohle(
        *("start", "--listener", "127.0.0.1:0", "--data", str(data), "--log-level", "error"),
        *arguments,
    )


def consumed(bootstrap: str, topic: str) -> list[bytes]:
    done = dohle("-b", bootstrap, "consume", topic, "-e")
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


def topics(bootstrap: str) -> list[str]:
    listed = dohle("-b", bootstrap, "--json", "topic", "list").stdout
    return [json.loads(line)["name"] for line in listed.splitlines()]


@pytest.mark.parametrize("lose", LOSSES)
def test_a_broker_does_not_start_without_its_metadata_and_changes_nothing(
    data: Path, lose: Callable[[Path], None]
) -> None:
    lose(data)
    before = content(data)
    done = start(data)
    assert done.returncode == 1
    assert done.stdout == b""
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("dohle: error: the metadata log")
    assert f"{data}/{METADATA}" in line
    assert f"{data}/orders-" in line or f"{data}/__transaction_state-" in line
    assert "bytes of records" in line
    assert "dohle storage recover-metadata" in line
    assert "--accept-metadata-loss" in line
    assert content(data) == before


@pytest.mark.parametrize("lose", LOSSES)
def test_recovery_shows_what_it_would_do_and_then_brings_every_topic_back(
    data: Path, lose: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    lose(data)
    before = content(data)
    arguments = ["storage", "recover-metadata", "--data", str(data)]
    assert main([*arguments, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["problem"].startswith("the metadata log")
    assert not shown["applied"]
    assert {"orders", "small", "__transaction_state"} <= {row["topic"] for row in shown["topics"]}
    assert content(data) == before
    assert main([*arguments, "--apply"]) == 0
    assert capsys.readouterr().out.endswith("written: the broker can be started\n")
    if lose is not remove:
        assert len(list(data.glob(f"{METADATA}.*-stray"))) == 1
    for _ in range(2):
        with Broker(data=str(data)) as broker:
            assert consumed(broker.bootstrap, "orders") == sorted(b"%d" % n for n in range(30))
            assert b"two" in consumed(broker.bootstrap, "small")
            asyncio.run(produce_more(broker.bootstrap))
    assert list(data.glob("orders-*-stray")) == []
    assert main([*arguments]) == 0
    assert capsys.readouterr().out == "there is nothing to recover\n"


async def produce_more(bootstrap: str) -> None:
    """Write with new producer ids, which must not be those of before, and with the old one."""
    async with Cluster(bootstrap) as cluster:
        async with Producer(cluster) as producer:
            await (await producer.send_soon("small", b"more"))
        async with Producer(cluster, TRANSACTION) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.send_soon("small", b"even more")
            await producer.commit_transaction()


def test_topics_whose_configs_are_lost_are_kept_for_good(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    remove(data)
    assert main(["storage", "recover-metadata", "--data", str(data), "--apply"]) == 0
    assert "retention.ms=-1" in capsys.readouterr().out
    with Broker(data=str(data)) as broker:
        image = broker.node.controller.image
        configs = {str(name): dict(image.topic_config(name)) for name in image.topics}
    assert configs["orders"] == {"retention.ms": "-1", "retention.bytes": "-1"}
    assert configs["__transaction_state"]["cleanup.policy"] == "compact"


def test_what_is_readable_of_a_damaged_log_is_used(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(data)
    assert main(["storage", "recover-metadata", "--data", str(data), "--apply"]) == 0
    with Broker(data=str(data)) as broker:
        image = broker.node.controller.image
        assert image.topic_config(TopicName("orders")) == {"retention.ms": "123456789"}


def test_whoever_accepts_the_loss_goes_on_and_keeps_the_folders(data: Path) -> None:
    remove(data)
    arguments = ("--data", str(data), "--accept-metadata-loss")
    with Started(*arguments, cwd=data.parent) as started:
        assert topics(started.bootstrap) == []
        assert started.stop() == 0
        assert "Going on, as --accept-metadata-loss says" in started.log
    assert len(list(data.glob("orders-*-stray"))) == 3
    with Started("--data", str(data), cwd=data.parent) as started:
        assert started.stop() == 0


def test_the_folder_of_a_deleted_topic_is_no_reason_not_to_start(data: Path) -> None:
    aside = data.parent / "aside"
    shutil.copytree(data / "orders-0", aside)
    with Broker(data=str(data)) as broker:
        assert main(["-b", broker.bootstrap, "topic", "delete", "orders"]) == 0
    # As if it had died between the decision and the deletion.
    aside.rename(data / "orders-0")
    with Started("--data", str(data), cwd=data.parent) as started:
        assert "orders" not in topics(started.bootstrap)
    assert len(list(data.glob("orders-0.*-stray"))) == 1


@pytest.mark.parametrize("left", [None, b"", b"#\n#Mon Jan 01 00:00:00 UTC 2024\nvers"])
def test_a_broker_does_not_start_without_its_identity_and_gets_it_back(
    data: Path, left: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = data / "meta.properties"
    old = read_meta_properties(OsFileSystem(), str(data))
    path.unlink() if left is None else path.write_bytes(left)
    before = content(data)
    done = start(data)
    assert done.returncode == 1
    (line,) = done.stderr.decode().splitlines()
    assert str(data) in line
    assert "meta.properties" in line
    assert "dohle storage recover-metadata" in line
    assert content(data) == before
    assert main(["storage", "recover-metadata", "--data", str(data)]) == 0
    assert f"{data} gets a meta.properties" in capsys.readouterr().out
    assert content(data) == before
    assert main(["storage", "recover-metadata", "--data", str(data), "--apply"]) == 0
    new = read_meta_properties(OsFileSystem(), str(data))
    assert (new.node_id, new.directory_id) == (old.node_id, old.directory_id)
    with Broker(data=str(data)) as broker:
        assert len(consumed(broker.bootstrap, "orders")) == 30


def test_a_broker_that_runs_keeps_its_metadata(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Broker(data=str(data)):
        assert main(["storage", "recover-metadata", "--data", str(data), "--apply"]) == 1
        assert "is in use: stop the broker first" in capsys.readouterr().err


def test_a_directory_without_its_id_gets_a_new_one_and_its_partitions_have_leaders(
    data: Path,
) -> None:
    path = data / "meta.properties"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith("directory.id")))
    with Started("--data", str(data), cwd=data.parent) as started:
        assert len(consumed(started.bootstrap, "orders")) == 30
        asyncio.run(produce_more(started.bootstrap))
        assert started.stop() == 0
    assert "directory.id=" in path.read_text()


def strays(data: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert main(["storage", "strays", "--data", str(data), "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_what_was_set_aside_is_listed_restored_and_served_again(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    remove(data)
    with Started("--data", str(data), "--accept-metadata-loss", cwd=data.parent) as started:
        with_broker = ["storage", "strays", "restore", "--all", "--data", str(data)]
        assert main(with_broker) == 1
        assert "stop the broker first" in capsys.readouterr().err
        assert started.stop() == 0
    listed = strays(data, capsys)
    assert {(row["topic"], row["partition"]) for row in listed} >= {("orders", 0), ("small", 0)}
    assert all(row["size"] > 0 for row in listed if row["topic"] == "orders")
    (one,) = [row for row in listed if row["topic"] == "small"]
    assert main(["storage", "strays", "restore", one["folder"], "--data", str(data)]) == 0
    assert "dohle storage recover-metadata" in capsys.readouterr().out
    assert (data / "small-0").is_dir()
    assert main(with_broker) == 0
    capsys.readouterr()
    assert strays(data, capsys) == []
    assert main(["storage", "recover-metadata", "--data", str(data), "--apply"]) == 0
    with Broker(data=str(data)) as broker:
        assert len(consumed(broker.bootstrap, "orders")) == 30
        assert b"two" in consumed(broker.bootstrap, "small")


def test_the_folders_of_a_deleted_topic_can_be_had_back_under_a_new_id(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    aside = data.parent / "aside"
    shutil.copytree(data / "small-0", aside)
    with Broker(data=str(data)) as broker:
        assert main(["-b", broker.bootstrap, "topic", "delete", "small"]) == 0
    stray = data / f"small-0.{'a' * 32}-stray"
    aside.rename(stray)
    assert main(["storage", "strays", "restore", stray.name, "--data", str(data)]) == 0
    assert main(["storage", "recover-metadata", "--data", str(data), "--apply"]) == 0
    with Broker(data=str(data)) as broker:
        assert b"two" in consumed(broker.bootstrap, "small")


def test_a_stray_folder_does_not_take_the_place_of_one_in_use_and_can_be_deleted(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stray = data / f"small-0.{'a' * 32}-stray"
    shutil.copytree(data / "small-0", stray)
    arguments = ["--data", str(data)]
    assert main(["storage", "strays", "restore", "--all", *arguments]) == 1
    assert "small-0 is in use" in capsys.readouterr().err
    assert main(["storage", "strays", "delete", *arguments]) == 2
    assert "needs the names of folders, or --all" in capsys.readouterr().err
    assert main(["storage", "strays", "delete", "nothing", *arguments]) == 1
    assert stray.exists()
    assert main(["storage", "strays", "delete", stray.name, *arguments]) == 0
    assert not stray.exists()
    assert (data / "small-0").is_dir()


def test_one_bad_partition_metadata_takes_one_partition_offline(data: Path) -> None:
    path = data / "orders-1" / "partition.metadata"
    good = path.read_bytes()
    path.write_bytes(good[:15])
    with Started("--data", str(data), cwd=data.parent) as started:
        asyncio.run(check_one_offline(started.bootstrap))
        assert b"two" in consumed(started.bootstrap, "small")
        assert started.stop() == 0
        assert f"orders-1 is offline: {path}" in started.log
    assert path.read_bytes() == good[:15]
    path.write_bytes(good)
    with Broker(data=str(data)) as broker:
        assert len(consumed(broker.bootstrap, "orders")) == 32


async def check_one_offline(bootstrap: str) -> None:
    async with await Wire.connect(bootstrap) as wire:
        codes = [(await produce(wire, "orders", batch(b"more"), n)).error_code for n in range(3)]
    assert codes == [0, ErrorCode.KAFKA_STORAGE_ERROR, 0]


def test_a_topic_whose_folder_cannot_be_used_can_be_deleted_and_made_anew(data: Path) -> None:
    (data / "small-0" / "partition.metadata").write_bytes(b"nonsense")
    with Started("--data", str(data), cwd=data.parent) as started:
        assert dohle("-b", started.bootstrap, "topic", "delete", "small").returncode == 0
        assert dohle("-b", started.bootstrap, "topic", "create", "small").returncode == 0
        assert consumed(started.bootstrap, "small") == []
        assert started.stop() == 0
    assert len(list(data.glob("small-0.*-stray"))) == 1
