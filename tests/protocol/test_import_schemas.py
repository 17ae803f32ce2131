"""The importer: Kafka's definitions in, declarations out, the same each time."""

from __future__ import annotations

import filecmp
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from dohle.protocol.errors import UnsupportedVersion

ROOT = Path(__file__).parents[2]
IMPORTER = ROOT / "tools" / "import_schemas.py"
COMMITTED = ROOT / "src" / "dohle" / "protocol" / "messages"

REQUEST = """
// A licence.
{
  "apiKey": 7, "type": "request", "listeners": ["broker", "controller"], "name": "PingRequest",
  // Version 1 was removed.
  "validVersions": "2-4", "flexibleVersions": "3+", "latestVersionUnstable": true,
  "fields": [
    { "name": "TopicName", "type": "string", "versions": "0+", "entityType": "topicName",
      "about": "A text that must not be copied." },
    { "name": "Replicas", "type": "[]int32", "versions": "0+", "entityType": "brokerId" },
    { "name": "TimeoutMs", "type": "int32", "versions": "3+", "default": "0x7fffffff",
      "ignorable": true },
    { "name": "Places", "type": "[]Place", "versions": "2+", "nullableVersions": "3+" },
    { "name": "Hint", "type": "Place", "versions": "4+", "taggedVersions": "4+", "tag": 0 }
  ],
  "commonStructs": [
    { "name": "Place", "versions": "2+", "fields": [
      { "name": "PlaceId", "type": "uuid", "versions": "2+" },
      { "name": "Score", "type": "float64", "versions": "4+", "default": "1.5" }
    ]}
  ]
}
"""
OLDER_REQUEST = """
{
  "apiKey": 7, "type": "request", "listeners": ["zkBroker"], "name": "PingRequest",
  "validVersions": "0-3", "flexibleVersions": "3+",
  "fields": [
    { "name": "TopicName", "type": "string", "versions": "0+", "entityType": "topicName" },
    { "name": "Zone", "type": "string", "versions": "0-1", "nullableVersions": "1" },
    { "name": "Replicas", "type": "[]int32", "versions": "1+", "entityType": "brokerId" },
    { "name": "TimeoutMs", "type": "int32", "versions": "3+", "default": "0x7fffffff" }
  ]
}
"""
RESPONSE = """
{
  "apiKey": 7, "type": "response", "name": "PingResponse",
  "validVersions": "2-4", "flexibleVersions": "3+",
  "fields": [
    { "name": "Place", "type": "Place", "versions": "2+", "fields": [
      { "name": "Data", "type": "bytes", "versions": "2+", "nullableVersions": "2+",
        "default": "null" }
    ]}
  ]
}
"""
OLDER_RESPONSE = """
{
  "apiKey": 7, "type": "response", "name": "PingResponse",
  "validVersions": "0-3", "flexibleVersions": "3+", "fields": []
}
"""
KEY = """
{
  "apiKey": 3, "type": "coordinator-key", "name": "ConsumerGroupThingKey",
  "validVersions": "0", "flexibleVersions": "none",
  "fields": [{ "name": "GroupId", "type": "string", "versions": "0", "entityType": "groupId" }]
}
"""


def write(folder: Path, *definitions: str) -> Path:
    inner = folder / "common"
    inner.mkdir(parents=True)
    for number, definition in enumerate(definitions):
        (inner / f"{number}.json").write_text(definition)
    return folder


def run_importer(*arguments: Path | str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(IMPORTER), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"imported_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("schemas")
    value = KEY.replace("coordinator-key", "coordinator-value").replace("ThingKey", "ThingValue")
    new = write(folder / "new", REQUEST, RESPONSE, KEY, value)
    old = write(folder / "old", OLDER_REQUEST, OLDER_RESPONSE)
    result = run_importer(new, "--older", old, "--out", folder / "messages")
    assert result.returncode == 0, result.stderr
    return folder / "messages"


def test_a_declaration_reads_like_this(package: Path) -> None:
    assert (
        (package / "ping.py").read_text()
        == '''"""Ping, api key 7: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.protocol.fields import array, binary, float64, int32, string, struct, uuid
from dohle.protocol.schema import Request, Response, Struct


class PingRequestPlace(Struct):
    place_id: Uuid = uuid("2+")
    score: float = float64("4+", default=1.5)


class PingRequest(Request, api_key=7, versions="0-4", flexible="3+"):
    topic_name: TopicName = string("0+")
    zone: str | None = string("0-1", nullable="1")
    replicas: tuple[BrokerId, ...] = array(int32, "1+")
    timeout_ms: int = int32("3+", default=2147483647, ignorable=True)
    places: tuple[PingRequestPlace, ...] | None = array(PingRequestPlace, "2+", nullable="3+")
    hint: PingRequestPlace = struct(PingRequestPlace, "4+", tag=0)


class PingResponsePlace(Struct):
    data: bytes | None = binary("2+", nullable=True, default=None)


class PingResponse(Response, api_key=7, versions="0-4", flexible="3+"):
    place: PingResponsePlace = struct(PingResponsePlace, "2+")
'''
    )


def test_older_versions_are_merged_in_their_own_order(package: Path) -> None:
    ping = load(package / "ping.py").PingRequest
    assert ping(topic_name="t", zone="z").encode(0) == b"\0\1t\0\1z"
    assert ping(topic_name="t", zone=None, replicas=(1,)).encode(1) == (
        b"\0\1t\xff\xff\0\0\0\1\0\0\0\1"
    )
    assert ping(topic_name="t").encode(2) == b"\0\1t\0\0\0\0\0\0\0\0"
    with pytest.raises(UnsupportedVersion):
        ping(zone="z").encode(2)


def test_the_index_names_what_the_release_serves(package: Path) -> None:
    index = load(package / "index.py")
    assert index.APIS == {index.ApiKey.PING: ("Ping", "0-4", "3+", "2-4", "bc")}
    assert frozenset({index.ApiKey.PING}) == index.UNSTABLE_APIS
    assert index.COORDINATOR_RECORDS == {
        "group": {3: ("records.consumer_group", "ConsumerGroupThingKey", "ConsumerGroupThingValue")}
    }


@pytest.mark.parametrize(
    ("definition", "complaint"),
    [
        (REQUEST.replace('"TopicName", "type"', '"Encode", "type"'), "cannot be called encode"),
        (REQUEST.replace('"4+", "tag"', '"5+", "tag"'), "tagged in some versions only"),
        (OLDER_REQUEST, "PingRequest and its response differ in their versions"),
    ],
)
def test_what_the_language_cannot_say_is_not_imported(
    tmp_path: Path, definition: str, complaint: str
) -> None:
    new = write(tmp_path / "new", definition, RESPONSE)
    result = run_importer(new, "--out", tmp_path / "messages")
    assert result.returncode != 0
    assert complaint in result.stderr


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    new = write(tmp_path / "new", REQUEST, RESPONSE)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("mine")
    result = run_importer(new, "--out", tmp_path / "precious")
    assert result.returncode != 0
    assert (tmp_path / "precious" / "file").read_text() == "mine"
    assert "no message definitions" in run_importer(tmp_path / "precious", "--out", "x").stderr


def test_importing_again_changes_nothing(tmp_path: Path) -> None:
    beside = ROOT.parent / "shared" / "kafka-schemas"
    schemas = Path(os.environ.get("DOHLE_KAFKA_SCHEMAS", beside))
    if not (schemas / "4.2.1").is_dir():
        pytest.skip("Kafka's definitions are not here; DOHLE_KAFKA_SCHEMAS can say where they are")
    out = tmp_path / "messages"
    result = run_importer(schemas / "4.2.1", "--older", schemas / "pre-4.0", "--out", out)
    assert result.returncode == 0, result.stderr
    assert_same(filecmp.dircmp(COMMITTED, out, ignore=["__pycache__"]))


def assert_same(found: filecmp.dircmp[str]) -> None:
    assert not found.left_only
    assert not found.right_only
    assert not found.diff_files
    for inner in found.subdirs.values():
        assert_same(inner)
