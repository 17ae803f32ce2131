"""kafka-dump-log and ``dohle log dump`` read the files of either broker, and read the same."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.process import BrokerProcess
from tests.interop.quick_broker import QUICK
from tests.jvm.apache_kafka import ApacheKafka
from tests.jvm.jvm import Jvm, Ran
from tests.jvm.world import World

#: What both tools say of a batch in the same words.
_BATCH = (
    *("baseOffset", "lastOffset", "count", "baseSequence", "lastSequence", "producerId"),
    *("producerEpoch", "partitionLeaderEpoch", "isTransactional", "isControl", "position"),
    *("size", "magic", "compresscodec", "crc", "isvalid"),
)
_ENTRIES = {
    "batch": _BATCH,
    "offsetIndexEntry": ("offset", "position"),
    "timeIndexEntry": ("timestamp", "offset"),
    "abortedTransaction": ("producerId", "firstOffset", "lastOffset", "lastStableOffset"),
    "producer": ("producerId", "producerEpoch", "coordinatorEpoch", "lastTimestamp"),
}
#: What both tools say of a producer's last batch, and what dohle says if it is not known.
_LAST_BATCH = {"firstSequence": -1, "lastSequence": -1, "lastOffset": -1, "offsetDelta": 0}
#: Not those of deleted topics: their names end in -delete.
_PARTITIONS = "*-*[0-9]"
_SUFFIXES = {".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint"}
_SNAPSHOTS = "__cluster_metadata-0/*.checkpoint"
_KAFKA_RECORD = re.compile(
    r"\| offset: (\d+) \w+: -?\d+ keySize.* headerKeys: \[\] (?:key: (\{.*\}) )?payload: (.*)$"
)
_KAFKA_CONTROL_RECORD = re.compile(r"\| offset: (\d+) .* headerKeys: \[\] (Snapshot\w+) (\{.*\})$")
_METADATA = "--cluster-metadata-decoder"
_INTERNAL = {
    "__consumer_offsets-*/*.log": "--offsets-decoder",
    "__transaction_state-*/*.log": "--transaction-log-decoder",
    "__cluster_metadata-0/*.log": _METADATA,
    _SNAPSHOTS: _METADATA,
}
#: So small that there are snapshots of the metadata.
_CONFIG = {**QUICK, "metadata.log.max.record.bytes.between.snapshots": "3000"}


@pytest.fixture(scope="module", params=["dohle", "kafka"])
def data(
    request: pytest.FixtureRequest,
    classpath: str,
    jvm: Jvm,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The data directory of a broker that has stopped."""
    folder = tmp_path_factory.mktemp("written")
    broker: BrokerProcess | ApacheKafka = BrokerProcess(folder, _CONFIG)
    if request.param == "kafka":
        broker = ApacheKafka(classpath, folder, _CONFIG)
        broker.format(jvm)
    with broker:
        World(jvm, broker.bootstrap).grow(0)
        broker.stop()
    return folder / "data"


def _kafka_dump(jvm: Jvm, files: list[Path], *options: str) -> Ran:
    ran = jvm.run("kafka.tools.DumpLogSegments", *options, "--files", ",".join(map(str, files)))
    assert (ran.code, ran.err) == (0, ""), ran
    return ran


def _dohle_dump(files: list[Path], *options: str) -> Iterator[dict[str, Any]]:
    command = [sys.executable, "-m", "dohle", "log", "dump", "--json", *options]
    done = subprocess.run([*command, *map(str, files)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return map(json.loads, done.stdout.splitlines())


def _words(names: tuple[str, ...], values: dict[str, Any]) -> list[str]:
    return [str(values[name]).lower() for name in names]


def test_both_tools_see_the_same_batches_and_entries(jvm: Jvm, data: Path) -> None:
    files = sorted(path for path in data.glob(_PARTITIONS + "/*") if path.suffix in _SUFFIXES)
    ours = [
        (entry["file"], _words(_ENTRIES[entry["type"]], entry))
        for entry in _dohle_dump(files)
        if entry["type"] in _ENTRIES
    ]
    theirs = []
    file = ""
    for line in _kafka_dump(jvm, files).lines:
        values = dict(re.findall(r"(\w+): (\S+)", line))
        names = [names for names in _ENTRIES.values() if values.keys() >= set(names)]
        if line.startswith("Dumping "):
            file = line.removeprefix("Dumping ")
        elif names:
            theirs.append((file, _words(names[0], values)))
    assert {Path(file).suffix for file, _ in theirs} == _SUFFIXES
    assert ours == theirs


def test_kafka_would_take_every_index(jvm: Jvm, data: Path) -> None:
    files = sorted(
        path for path in data.glob(_PARTITIONS + "/*index") if path.suffix != ".txnindex"
    )
    for line in _kafka_dump(jvm, files, "--index-sanity-check").lines:
        assert line.startswith("Dumping ") or re.search(
            r" is empty\.$| passed sanity check\.$", line
        )
    assert "Mismatch" not in _kafka_dump(jvm, files, "--verify-index-only").out


def test_both_tools_see_the_same_producers(jvm: Jvm, data: Path) -> None:
    files = sorted(data.glob(_PARTITIONS + "/*.snapshot"))
    ours = [
        (
            entry["producerId"],
            entry["currentTxnFirstOffset"],
            *(entry[name] for name in _LAST_BATCH),
        )
        for entry in _dohle_dump(files)
        if entry["type"] == "producer"
    ]
    theirs = []
    for line in _kafka_dump(jvm, files).lines:
        values = dict(re.findall(r"(\w+): (\S+)", line))
        if "producerId" in values:
            begin = re.fullmatch(
                r"OptionalLong(?:\[(\d+)\]|.empty)", values["currentTxnFirstOffset"]
            )
            assert begin is not None
            last = [int(values.get(name, absent)) for name, absent in _LAST_BATCH.items()]
            theirs.append((int(values["producerId"]), int(begin[1] or -1), *last))
    assert any(begin >= 0 for _, begin, *_ in theirs)
    assert any(last_sequence > 0 for _, _, _, last_sequence, *_ in theirs)
    assert ours == theirs


def test_both_tools_see_a_snapshot_begin_and_end(jvm: Jvm, data: Path) -> None:
    files = sorted(data.glob(_SNAPSHOTS)) + sorted(data.glob("bootstrap.checkpoint"))
    ours = [
        (entry["offset"], entry["value"]["name"].removesuffix("Record"), _data(entry["value"]))
        for entry in _dohle_dump(files, _METADATA)
        if entry["type"] == "controlRecord"
    ]
    theirs = [
        (int(match[1]), match[2], json.loads(match[3]))
        for match in map(_KAFKA_CONTROL_RECORD.match, _kafka_dump(jvm, files, _METADATA).lines)
        if match is not None
    ]
    assert [name for _, name, _ in theirs] == ["SnapshotHeader", "SnapshotFooter"] * len(files)
    assert ours == theirs


def test_a_snapshot_holds_the_topics_of_the_log_below_its_end(jvm: Jvm, data: Path) -> None:
    """Each tool reads one of the two."""
    snapshot = max(data.glob(_SNAPSHOTS))
    end_offset = int(snapshot.name.partition("-")[0])
    names: dict[str, str] = {}
    for entry in _dohle_dump(sorted(data.glob("__cluster_metadata-0/*.log")), _METADATA):
        if entry["type"] == "record" and entry["offset"] < end_offset:
            value = entry["value"]
            if value["name"] == "TopicRecord":
                names[value["data"]["topicId"]] = value["data"]["name"]
            elif value["name"] == "RemoveTopicRecord":
                del names[value["data"]["topicId"]]
    ran = _kafka_dump(jvm, [snapshot], _METADATA)
    payloads = [
        json.loads(match[3]) for match in map(_KAFKA_RECORD.match, ran.lines) if match is not None
    ]
    topics = [each["data"] for each in payloads if each["type"] == "TOPIC_RECORD"]
    assert f"Snapshot end offset: {end_offset}, epoch: 1" in ran.lines
    assert {topic["topicId"]: topic["name"] for topic in topics} == names
    assert names


@pytest.mark.parametrize("pattern", _INTERNAL)
def test_both_tools_decode_the_records_of_internal_topics(
    jvm: Jvm, data: Path, pattern: str
) -> None:
    files, decoder = sorted(data.glob(pattern)), _INTERNAL[pattern]
    ours = [
        (entry["offset"], _data(entry["key"]), _data(entry["value"]))
        for entry in _dohle_dump(files, decoder)
        if entry["type"] == "record"
    ]
    theirs = []
    for line in _kafka_dump(jvm, files, decoder).lines:
        match = _KAFKA_RECORD.match(line)
        if match is not None:
            offset, key, value = match.groups()
            decoded = None if value == "<DELETE>" else json.loads(value)
            theirs.append((int(offset), _data(json.loads(key or "null")), _data(decoded)))
    assert theirs
    assert ours == theirs


def _data(decoded: Any) -> Any:
    """Return the fields of a decoded key or value, without bytes that one tool decodes further."""
    if decoded is None:
        return None
    for member in decoded["data"].get("members", ()):
        del member["subscription"], member["assignment"]
    return decoded["data"]
