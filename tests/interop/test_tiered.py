"""Tiered storage with librdkafka: records that are on no disk of the broker any more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from os import mkfifo
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Protocol
from urllib.request import urlopen

import confluent_kafka
import pytest

from dohle.cli.main import main
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicName
from dohle.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from dohle.storage.log import Log
from dohle.testing import Broker
from tests.interop.process import BrokerProcess
from tests.interop.wire import Wire

admin_api: Any = import_module("confluent_kafka.admin")

_TIMEOUT_S = 60
_TOPIC = "tiered"
_COUNT = 3_000
_TIERED = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "20000",
    "local.retention.ms": "1",
    "retention.ms": "-1",
    "file.delete.delay.ms": "0",
}


class Served(Protocol):
    """A broker, in this process or another."""

    @property
    def bootstrap(self) -> str:
        """Where it is."""


def _config(tmp_path: Path) -> dict[str, str]:
    return {
        "remote.log.storage.system.enable": "true",
        "rsm.config.url": f"file://{tmp_path / 'store'}",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
        "remote.log.manager.task.interval.ms": "100",
        "log.retention.check.interval.ms": "100",
        "log.initial.task.delay.ms": "100",
        "metrics.listener": "127.0.0.1:0",
    }


@pytest.fixture
def tiered(tmp_path: Path) -> Iterator[Broker]:
    with Broker(_config(tmp_path), data=str(tmp_path / "data")) as broker:
        yield broker


def _create(broker: Served, **changed: str) -> None:
    admin = admin_api.AdminClient({"bootstrap.servers": broker.bootstrap})
    configs = {**_TIERED, **{name.replace("_", "."): text for name, text in changed.items()}}
    admin.create_topics([admin_api.NewTopic(_TOPIC, 1, 1, config=configs)])[_TOPIC].result(
        _TIMEOUT_S
    )


def _produce(broker: Served, count: int = _COUNT, start: int = 0) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "batch.num.messages": 20, "linger.ms": 0}
    )
    for number in range(start, start + count):
        producer.produce(_TOPIC, f"value {number}".ljust(100).encode(), f"key {number}".encode())
        producer.poll(0)
    assert producer.flush(_TIMEOUT_S) == 0


def _consume(
    broker: Served,
    count: int,
    start: int = confluent_kafka.OFFSET_BEGINNING,
    *,
    may_fail: bool = False,
) -> list[int]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(_TOPIC, 0, start)])
    found: list[int] = []
    deadline = monotonic() + _TIMEOUT_S
    try:
        while len(found) < count and monotonic() < deadline:
            for message in consumer.consume(500, 0.5):
                if may_fail and message.error() is not None:
                    continue
                assert message.error() is None, message.error()
                value = message.value()
                assert value is not None
                number = int(value.split()[1])
                assert message.offset() == number
                found.append(number)
    finally:
        consumer.close()
    return found


def _log(broker: Broker) -> Log:
    partition = broker.node.broker.partitions.get(_TOPIC, 0)
    assert partition is not None
    return partition.log


def _wait_until_local_is_gone(broker: Broker, least: int) -> None:
    deadline = monotonic() + _TIMEOUT_S
    while _log(broker).segments.first.base_offset < least:
        assert monotonic() < deadline, _log(broker).segments.base_offsets
        sleep(0.05)


def _metrics(broker: Broker) -> dict[str, float]:
    """What is told to Prometheus of topics."""
    server = broker.node.metrics
    assert server is not None
    host, port = server.host, server.port
    with urlopen(f"http://{host}:{port}/metrics", timeout=_TIMEOUT_S) as answer:
        lines = answer.read().decode().splitlines()
    prefix = "kafka_server_brokertopicmetrics_"
    found = [line.removeprefix(prefix).rsplit(" ", 1) for line in lines if line.startswith(prefix)]
    return {name: float(value) for name, value in found}


def test_a_consumer_reads_from_the_beginning_what_is_in_the_store_only(
    tiered: Broker, tmp_path: Path
) -> None:
    """T1, T5, T12: local segments are gone, the log start is not."""
    _create(tiered)
    _produce(tiered)
    _wait_until_local_is_gone(tiered, _COUNT)
    log = _log(tiered)
    assert log.log_start_offset == 0
    assert log.highest_remote_offset >= log.segments.first.base_offset - 1
    assert _consume(tiered, _COUNT) == list(range(_COUNT))
    assert list((tmp_path / "store").rglob("*.rsm-manifest"))
    told = _metrics(tiered)
    assert told['remotecopybytes_total{topic="tiered"}'] >= 100 * _COUNT // 2
    assert told["remotefetchbytes_total"] >= 100 * _COUNT // 2
    assert told["remotecopyerrors_total"] == told["remotefetcherrors_total"] == 0
    assert told["remotelogmetadatacount"] == len(list((tmp_path / "store").rglob("*.log")))


def test_after_a_restart_the_remote_part_is_still_there(tmp_path: Path) -> None:
    """T14: the log start is what the checkpoint says, not the first segment."""
    with Broker(_config(tmp_path), data=str(tmp_path / "data")) as broker:
        _create(broker)
        _produce(broker)
        _wait_until_local_is_gone(broker, _COUNT // 2)
    with Broker(_config(tmp_path), data=str(tmp_path / "data")) as broker:
        assert _log(broker).log_start_offset == 0
        assert _consume(broker, _COUNT) == list(range(_COUNT))
        _produce(broker, 10, start=_COUNT)
        assert _consume(broker, 20, start=_COUNT - 10) == list(range(_COUNT - 10, _COUNT + 10))


def test_offsets_are_found_in_both_tiers(tiered: Broker) -> None:
    """T13: earliest is that of the whole log; a time may be in the remote part."""
    _create(tiered)
    _produce(tiered)
    _wait_until_local_is_gone(tiered, _COUNT // 2)
    admin = admin_api.AdminClient({"bootstrap.servers": tiered.bootstrap})
    place = confluent_kafka.TopicPartition(_TOPIC, 0)
    for spec, wanted in (
        (admin_api.OffsetSpec.earliest(), 0),
        (admin_api.OffsetSpec.for_timestamp(1), 0),
    ):
        found = admin.list_offsets({place: spec})[place].result(_TIMEOUT_S)
        assert found.offset == wanted


def test_a_deleted_topic_leaves_nothing_in_the_store(tiered: Broker, tmp_path: Path) -> None:
    """T15, and 6 of T27."""
    _create(tiered)
    _produce(tiered, 1000)
    _wait_until_local_is_gone(tiered, 100)
    admin = admin_api.AdminClient({"bootstrap.servers": tiered.bootstrap})
    admin.delete_topics([_TOPIC])[_TOPIC].result(_TIMEOUT_S)
    deadline = monotonic() + _TIMEOUT_S
    while [path for path in (tmp_path / "store").rglob("*") if path.is_file()]:
        assert monotonic() < deadline
        sleep(0.05)


def test_what_has_expired_leaves_the_store_and_moves_the_log_start(
    tiered: Broker, tmp_path: Path
) -> None:
    """T7: by size, of both tiers together; the log start is raised first."""
    _create(tiered, retention_bytes="100000")
    _produce(tiered)
    deadline = monotonic() + _TIMEOUT_S
    while _log(tiered).log_start_offset < 1000:
        assert monotonic() < deadline
        sleep(0.05)
    log = _log(tiered)
    found = _consume(tiered, 1, start=log.log_start_offset)
    assert found[0] == log.log_start_offset


def test_a_topic_cannot_be_tiered_on_a_broker_without_a_tier(tmp_path: Path) -> None:
    """T2."""
    with Broker(data=str(tmp_path)) as broker:
        with pytest.raises(confluent_kafka.KafkaException) as refused:
            _create(broker)
        assert refused.value.args[0].code() == ErrorCode.INVALID_CONFIG
        assert "Tiered Storage functionality is disabled" in refused.value.args[0].str()


def test_special_offsets_tell_where_each_tier_ends(tiered: Broker) -> None:
    """T13: -4 the first on this disk, -5 the last that is remote, -6 what is copied next."""
    _create(tiered)
    _produce(tiered)
    _wait_until_local_is_gone(tiered, _COUNT)
    with Wire(tiered.bootstrap) as wire:

        def find(timestamp: int, version: int) -> tuple[int, int]:
            asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            topic = ListOffsetsTopic(name=TopicName(_TOPIC), partitions=(asked,))
            request = ListOffsetsRequest(replica_id=BrokerId(-1), topics=(topic,))
            found = wire.ask(request, ListOffsetsResponse, version).topics[0].partitions[0]
            assert found.error_code == 0
            return found.offset, found.leader_epoch

        assert find(-2, 7) == (0, 0)
        assert find(-4, 8) == (_COUNT, 0)
        assert find(-5, 9) == (_COUNT - 1, 0)
        assert find(-6, 11) == (_COUNT, 0)


def test_a_store_that_is_gone_for_a_while_holds_up_nobody_but_its_readers(
    tiered: Broker, tmp_path: Path
) -> None:
    """T12, T15a, T27.8: failed reads are tried again, never taken for the end of the log."""
    _create(tiered)
    _produce(tiered)
    _wait_until_local_is_gone(tiered, _COUNT)
    (tmp_path / "store").rename(tmp_path / "away")
    (tmp_path / "store").write_text("not a folder")
    _produce(tiered, 100, start=_COUNT)
    assert _consume(tiered, 100, start=_COUNT) == list(range(_COUNT, _COUNT + 100))
    with Wire(tiered.bootstrap) as wire:
        assert wire.fetch(_TOPIC, 0).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    (tmp_path / "store").unlink()
    (tmp_path / "away").rename(tmp_path / "store")
    found = _consume(tiered, _COUNT + 100, start=0, may_fail=True)
    assert found == list(range(_COUNT + 100))


def test_aborted_records_of_the_remote_part_are_not_seen(tiered: Broker) -> None:
    """T12: the aborted transactions come with what is read, from the indexes in the store."""
    _create(tiered)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": tiered.bootstrap, "transactional.id": "t", "batch.num.messages": 10}
    )
    producer.init_transactions(_TIMEOUT_S)
    committed = []
    for number in range(40):
        producer.begin_transaction()
        for index in range(30):
            producer.produce(_TOPIC, f"{number} {index}".ljust(100).encode())
        if number % 3:
            producer.commit_transaction(_TIMEOUT_S)
            committed += [(number, index) for index in range(30)]
        else:
            producer.flush(_TIMEOUT_S)
            producer.abort_transaction(_TIMEOUT_S)
    _wait_until_local_is_gone(tiered, _log(tiered).high_watermark // 2)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": tiered.bootstrap, "group.id": "g", "auto.offset.reset": "error"}
    )
    consumer.assign([confluent_kafka.TopicPartition(_TOPIC, 0, 0)])
    found: list[tuple[int, int]] = []
    deadline = monotonic() + _TIMEOUT_S
    while len(found) < len(committed) and monotonic() < deadline:
        for message in consumer.consume(500, 0.5):
            value = message.value()
            assert message.error() is None
            assert value is not None
            number, index = map(int, value.split())
            found.append((number, index))
    consumer.close()
    assert found == committed


def test_nothing_is_lost_by_a_broker_that_is_killed_again_and_again(tmp_path: Path) -> None:
    """T15a, T27.1: while it copies, deletes here and serves; started by ``--tier``."""
    config = {name: text for name, text in _config(tmp_path).items() if not name.startswith("rsm.")}
    del config["remote.log.storage.system.enable"]
    store = tmp_path / "store"
    broker = BrokerProcess(tmp_path, config, options=["--tier", str(store)])
    broker.start()
    _create(broker)
    for turn in range(4):
        _produce(broker, 1000, start=1000 * turn)
        sleep(0.3 * turn)
        broker.kill()
        broker.start()
    try:
        found = _consume(broker, 4000, start=0, may_fail=True)
        assert found == list(range(4000))
        _wait_for_base(tmp_path, 2000)
        assert _consume(broker, 4000, start=0, may_fail=True) == list(range(4000))
    finally:
        broker.kill()


def _wait_for_base(tmp_path: Path, least: int) -> None:
    folder = tmp_path / "data" / f"{_TOPIC}-0"
    deadline = monotonic() + _TIMEOUT_S
    while min(int(path.stem) for path in folder.glob("*.log")) < least:
        assert monotonic() < deadline
        sleep(0.1)


def test_a_store_that_hangs_holds_up_neither_the_tail_nor_the_stop(tmp_path: Path) -> None:
    """T12, T27.8: to open a pipe that nobody writes to takes for ever."""
    config = {**_config(tmp_path), "remote.log.reader.max.pending.tasks": "1"}
    with BrokerProcess(tmp_path, config) as broker:
        _create(broker)
        _produce(broker)
        _wait_for_base(tmp_path, _COUNT // 2)
        path = min((tmp_path / "store").rglob("*.log"))
        path.unlink()
        mkfifo(path)
        with Wire(broker.bootstrap) as wire:
            # There is no room for a second read: it is not refused, but asked for again.
            for offset in (0, 0, 1000):
                found = wire.fetch(_TOPIC, offset)
                assert (found.error_code, found.records) == (ErrorCode.NONE, b"")
        _produce(broker, 100, start=_COUNT)
        assert _consume(broker, 100, start=_COUNT) == list(range(_COUNT, _COUNT + 100))
        started_s = monotonic()
        assert broker.stop() == 0
        assert monotonic() - started_s < 5


def test_the_command_line_shows_what_is_remote_and_finds_what_is_missing(
    tiered: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """T27.1, T27.6."""
    _create(tiered)
    _produce(tiered)
    _wait_until_local_is_gone(tiered, _COUNT)
    assert main(["tier", "ls", _TOPIC, "--json", "-b", tiered.bootstrap]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (rows[0]["startOffset"], rows[-1]["endOffset"]) == (0, _COUNT - 1)
    assert {row["state"] for row in rows} == {"COPY_SEGMENT_FINISHED"}
    verify = ["tier", "verify", _TOPIC, "--tier", str(tmp_path / "store"), "-b", tiered.bootstrap]
    assert main(verify) == 0
    assert capsys.readouterr().out == f"{len(rows)} segments, all there\n"
    assert main([*verify, "--read"]) == 0
    log = next((tmp_path / "store").rglob("*.log"))
    *good, last = log.read_bytes()
    log.write_bytes(bytes([*good, last ^ 1]))
    assert main(verify) == 0, "all is there, and of the size that it had"
    assert main([*verify, "--read"]) == 1
    assert f"{log.name}: wrong checksum at position" in capsys.readouterr().err
    gone = next((tmp_path / "store").rglob("*.indexes"))
    gone.unlink()
    assert main(verify) == 1
    assert "is missing" in capsys.readouterr().err
    assert main([*verify, "--json"]) == 1
    (told,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert told["problem"].endswith(f"{gone.name}: is missing")
    verify[verify.index("--tier") + 1] = str(tmp_path / "elsewhere")
    assert main(verify) == 2
    assert "there is no such folder" in capsys.readouterr().err


def test_objects_that_no_record_tells_of_are_deleted_when_somebody_says_so(
    tiered: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """T27.6: and no others."""
    _create(tiered)
    _produce(tiered)
    _wait_until_local_is_gone(tiered, _COUNT)
    store = tmp_path / "store"
    known = {each: each.read_bytes() for each in store.rglob("*") if each.is_file()}
    stray = next(iter(known)).with_name("00000000000000000000-AAAAAAAAAAAAAAAAAAAAAA.log")
    stray.write_bytes(b"nobody's")
    repair = ["tier", "repair", _TOPIC, "--tier", str(store), "-b", tiered.bootstrap]
    for options in (["--dry-run"], []):
        assert stray.exists()
        assert main([*repair, *options, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told == {"partition": 0, "key": str(stray.relative_to(store)), "sizeBytes": 8}
    assert main([*repair, "--json"]) == 0
    assert capsys.readouterr().out == ""
    assert {each: each.read_bytes() for each in store.rglob("*") if each.is_file()} == known


def test_a_broker_without_its_tier_does_not_start_with_a_topic_that_is_in_it(
    tmp_path: Path,
) -> None:
    """T2: half of the log would be taken for all of it."""
    with Broker(_config(tmp_path), data=str(tmp_path / "data")) as broker:
        _create(broker)
    with pytest.raises(KafkaError, match=r"tiered has remote\.storage\.enable=true"):
        Broker(data=str(tmp_path / "data")).start()


def test_a_topic_that_is_tiered_no_more_keeps_what_is_on_the_disk(
    tiered: Broker, tmp_path: Path
) -> None:
    """T15, KIP-950: remote data goes only if that is said, and the log begins with the disk."""
    _create(tiered, local_retention_ms="3600000", retention_ms="3600000")
    _produce(tiered, 1000)
    deadline = monotonic() + _TIMEOUT_S
    while _log(tiered).highest_remote_offset < 500:
        assert monotonic() < deadline
        sleep(0.05)
    admin = admin_api.AdminClient({"bootstrap.servers": tiered.bootstrap})
    place = admin_api.ConfigResource(admin_api.ConfigResource.Type.TOPIC, _TOPIC)

    def alter(**configs: str) -> None:
        place.incremental_configs = [
            admin_api.ConfigEntry(
                name.replace("_", "."),
                text,
                incremental_operation=admin_api.AlterConfigOpType.SET,
            )
            for name, text in configs.items()
        ]
        admin.incremental_alter_configs([place])[place].result(_TIMEOUT_S)

    with pytest.raises(confluent_kafka.KafkaException):
        alter(remote_storage_enable="false")
    alter(remote_storage_enable="false", remote_log_delete_on_disable="true")
    while [path for path in (tmp_path / "store").rglob("*") if path.is_file()]:
        assert monotonic() < deadline
        sleep(0.05)
    assert _consume(tiered, 1000, start=0) == list(range(1000))
