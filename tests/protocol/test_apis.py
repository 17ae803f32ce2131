"""The index of messages: true to the declarations, and light."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dohle.protocol.apis import (
    APIS,
    ApiKey,
    Coordinator,
    ListenerType,
    cluster_metadata_record,
    coordinator_record,
    find_api,
    load_message,
    message_modules,
    remote_log_metadata_record,
)
from dohle.protocol.errors import UnknownRecordType, UnsupportedVersion
from dohle.protocol.messages import index
from dohle.protocol.schema import CoordinatorKey, CoordinatorValue, VersionRange, version_range

#: What Kafka 4.2 answers to ApiVersions, in places where it is easy to be wrong.
KNOWN = {
    ApiKey.PRODUCE: ("3-13", "9+", {ListenerType.BROKER}),
    ApiKey.FETCH: ("4-18", "12+", {ListenerType.BROKER, ListenerType.CONTROLLER}),
    ApiKey.LEADER_AND_ISR: ("none", "4+", set()),
    ApiKey.SASL_HANDSHAKE: ("0-1", "none", {ListenerType.BROKER, ListenerType.CONTROLLER}),
    ApiKey.OFFSET_DELETE: ("0", "none", {ListenerType.BROKER}),
    ApiKey.VOTE: ("0-2", "0+", {ListenerType.CONTROLLER}),
    ApiKey.LIST_CONFIG_RESOURCES: ("0-1", "0+", {ListenerType.BROKER}),
    ApiKey.SHARE_FETCH: ("1-2", "1+", {ListenerType.BROKER}),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: ("0", "0+", {ListenerType.BROKER}),
}


@pytest.mark.parametrize("key", APIS)
def test_the_index_says_what_the_declarations_say(key: int) -> None:
    api = APIS[key]
    for cls in (api.request(), api.response()):
        assert key == cls.API_KEY
        assert api.versions == cls.VERSIONS
        assert api.flexible == cls.FLEXIBLE
        assert cls.__name__.startswith(api.name)
    assert api.release_versions == VersionRange(0, -1) or (
        api.versions.lowest <= api.release_versions.lowest
        and api.versions.highest == api.release_versions.highest
    )


@pytest.mark.parametrize("key", KNOWN)
def test_what_the_release_serves_is_known(key: ApiKey) -> None:
    release, flexible, listeners = KNOWN[key]
    api = find_api(key)
    assert str(api.release_versions) == release
    assert str(api.flexible) == flexible
    assert api.listeners == listeners


def test_counts_are_those_of_the_release() -> None:
    assert list(APIS) == list(range(93))
    served = [api for api in APIS.values() if api.release_versions.highest >= 0]
    assert len(served) == 89
    assert sum(ListenerType.BROKER in api.listeners for api in served) == 77
    assert sum(ListenerType.CONTROLLER in api.listeners for api in served) == 41
    unstable = [api.key for api in served if api.latest_version_unstable]
    assert unstable == [ApiKey.INIT_PRODUCER_ID]


def test_versions_that_the_release_has_dropped_are_there() -> None:
    dropped = {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.OFFSET_COMMIT, ApiKey.CONTROLLED_SHUTDOWN}
    assert all(find_api(key).versions.lowest == 0 for key in dropped)
    # Share groups were a preview in their version 0: nobody was promised it.
    assert find_api(ApiKey.SHARE_FETCH).versions == version_range("1-2")


def test_an_unknown_key_is_refused() -> None:
    for key in (-1, 93, 1000):
        with pytest.raises(UnsupportedVersion, match=str(key)):
            find_api(key)


def test_headers_follow_the_version_of_the_request() -> None:
    produce, versions = find_api(ApiKey.PRODUCE), find_api(ApiKey.API_VERSIONS)
    assert [produce.request_header_version(v) for v in (0, 8, 9, 13)] == [1, 1, 2, 2]
    assert [produce.response_header_version(v) for v in (0, 8, 9, 13)] == [0, 0, 1, 1]
    assert [versions.request_header_version(v) for v in (0, 2, 3, 99)] == [1, 1, 2, 2]
    assert [versions.response_header_version(v) for v in (0, 2, 3, 99)] == [0, 0, 0, 0]
    shutdown = find_api(ApiKey.CONTROLLED_SHUTDOWN)
    assert [shutdown.request_header_version(v) for v in (0, 1, 3)] == [0, 1, 2]
    assert find_api(ApiKey.SASL_HANDSHAKE).request_header_version(1) == 1


def test_every_stored_record_is_found_by_its_number() -> None:
    for key in index.CLUSTER_METADATA_RECORDS:
        assert key == cluster_metadata_record(key).API_KEY
    for key in index.REMOTE_LOG_METADATA_RECORDS:
        assert key == remote_log_metadata_record(key).API_KEY
    for coordinator in Coordinator:
        for number in index.COORDINATOR_RECORDS[coordinator]:
            key_class, value_class = coordinator_record(coordinator, number)
            assert issubclass(key_class, CoordinatorKey)
            assert issubclass(value_class, CoordinatorValue)
            assert key_class.RECORD_TYPE == value_class.RECORD_TYPE == number


def test_an_unknown_record_number_is_told_apart() -> None:
    with pytest.raises(UnknownRecordType, match="99"):
        cluster_metadata_record(99)
    with pytest.raises(UnknownRecordType, match="99"):
        remote_log_metadata_record(99)
    with pytest.raises(UnknownRecordType, match="group coordinator has no record type 9"):
        coordinator_record(Coordinator.GROUP, 9)


def test_every_message_is_found_by_its_name() -> None:
    for name in message_modules():
        assert load_message(name).__name__ == name
    with pytest.raises(KeyError):
        load_message("NoSuchMessage")


def test_looking_up_one_message_imports_no_other() -> None:
    script = """
import sys
from dohle.protocol import apis, framing, record_framing
def loaded():
    prefix = "dohle.protocol.messages."
    return sorted(name.removeprefix(prefix) for name in sys.modules if name.startswith(prefix))
assert loaded() == ["index"], loaded()
assert "dohle.protocol.codec.compiler" not in sys.modules
apis.find_api(12).request()
assert loaded() == ["heartbeat", "index"], loaded()
assert "dohle.protocol.codec.compiler" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)
