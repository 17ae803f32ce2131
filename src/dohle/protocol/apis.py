"""The registry of APIs and records: maps a key to its message and imports only that message.

The facts come from an index that the importer writes beside the declarations, so that a broker can
list its APIs and a decoder can choose a header without loading a single declaration.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import import_module
from typing import Final, cast

from dohle.protocol.errors import UnknownRecordType, UnsupportedVersion
from dohle.protocol.messages import index
from dohle.protocol.messages.index import ApiKey
from dohle.protocol.schema import (
    CoordinatorKey,
    CoordinatorValue,
    Message,
    MetadataRecord,
    Request,
    Response,
    VersionRange,
    version_range,
)

__all__ = [
    "APIS",
    "FORWARDABLE",
    "Api",
    "ApiKey",
    "Coordinator",
    "ListenerType",
    "cluster_metadata_record",
    "coordinator_record",
    "find_api",
    "load_message",
    "message_modules",
    "remote_log_metadata_record",
]


class ListenerType(StrEnum):
    """The role that serves an API: broker or controller."""

    BROKER = "b"
    CONTROLLER = "c"


class Coordinator(StrEnum):
    """A coordinator that writes keyed records to its own topic."""

    GROUP = "group"
    SHARE = "share"
    TRANSACTION = "transaction"


#: What a broker sends on to the active controller when a client asks for it (A10).
FORWARDABLE: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
    }
)


@dataclass(frozen=True, slots=True)
class Api:
    """One kind of request and its response."""

    key: ApiKey
    name: str
    #: All versions that can be encoded and decoded, including those that Kafka has dropped.
    versions: VersionRange
    #: The versions with compact lengths and tagged fields.
    flexible: VersionRange
    #: The versions that the imported release of Kafka serves; empty if it has removed the API.
    release_versions: VersionRange
    #: The roles that serve it in that release.
    listeners: frozenset[ListenerType]
    #: Whether the release marks its latest version as unstable.
    latest_version_unstable: bool

    def request(self) -> type[Request]:
        """Return the request's class."""
        return cast(type[Request], self._load("Request"))

    def response(self) -> type[Response]:
        """Return the response's class."""
        return cast(type[Response], self._load("Response"))

    def request_header_version(self, version: int) -> int:
        """Return the version of the header before a request of this version."""
        if self.flexible.covers(version):
            return 2
        return 0 if self.key == ApiKey.CONTROLLED_SHUTDOWN and version == 0 else 1

    def response_header_version(self, version: int) -> int:
        """Return the version of the header before a response of this version."""
        # A client reads ApiVersions before it knows what the broker understands, so that
        # response's header never changes (KIP-511).
        return int(self.flexible.covers(version) and self.key != ApiKey.API_VERSIONS)

    def _load(self, kind: str) -> object:
        return _load(self.key.name.lower(), self.name + kind)


@cache
def _load(module: str, name: str) -> object:
    # Asked for every record that is decoded; there are only so many names.
    return getattr(import_module(f"dohle.protocol.messages.{module}"), name)


def _apis() -> dict[int, Api]:
    return {
        key: Api(
            key,
            name,
            version_range(versions),
            version_range(flexible),
            version_range(release),
            frozenset(map(ListenerType, listeners)),
            key in index.UNSTABLE_APIS,
        )
        for key, (name, versions, flexible, release, listeners) in index.APIS.items()
    }


#: All APIs by their key.
APIS: dict[int, Api] = _apis()


def find_api(key: int) -> Api:
    """Return the API of a key; an unknown key raises UnsupportedVersion."""
    api = APIS.get(key)
    if api is None:
        raise UnsupportedVersion(f"no API has the key {key}")
    return api


def cluster_metadata_record(key: int) -> type[MetadataRecord]:
    """Return the record of the cluster metadata log that has this key."""
    return _metadata_record(index.CLUSTER_METADATA_RECORDS, key, "cluster metadata")


def remote_log_metadata_record(key: int) -> type[MetadataRecord]:
    """Return the record of the remote log metadata topic that has this key."""
    return _metadata_record(index.REMOTE_LOG_METADATA_RECORDS, key, "remote log metadata")


def _metadata_record(
    records: dict[int, tuple[str, str]], key: int, what: str
) -> type[MetadataRecord]:
    if key not in records:
        raise UnknownRecordType(f"no {what} record has the key {key}")
    return cast(type[MetadataRecord], _load(*records[key]))


def coordinator_record(
    coordinator: Coordinator, record_type: int
) -> tuple[type[CoordinatorKey], type[CoordinatorValue]]:
    """Return the key and the value of a coordinator's record type."""
    found = index.COORDINATOR_RECORDS[coordinator].get(record_type)
    if found is None:
        raise UnknownRecordType(f"the {coordinator} coordinator has no record type {record_type}")
    module, key, value = found
    return (
        cast(type[CoordinatorKey], _load(module, key)),
        cast(type[CoordinatorValue], _load(module, value)),
    )


def message_modules() -> dict[str, str]:
    """Return the names of all messages with the modules that declare them."""
    modules = dict(index.OTHERS)
    for key, (name, *_) in index.APIS.items():
        modules[name + "Request"] = modules[name + "Response"] = key.name.lower()
    for records in (index.CLUSTER_METADATA_RECORDS, index.REMOTE_LOG_METADATA_RECORDS):
        modules |= {name: module for module, name in records.values()}
    for types in index.COORDINATOR_RECORDS.values():
        for module, key_name, value_name in types.values():
            modules[key_name] = modules[value_name] = module
    return modules


def load_message(name: str) -> type[Message]:
    """Return a message by its name; KeyError if there is none."""
    return cast(type[Message], _load(message_modules()[name], name))
