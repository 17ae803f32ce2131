"""What a message says, without what differs between two runs of the same requests.

- A field that has its default is left out, but for error codes, which appear by their names.
- Ids that a broker makes up (uuids, producer ids, fetch sessions) become their kind and a number,
  counted by first appearance; those of topics become the topic's name.
- Times near now, ports, sizes of disks and the like become a word. Texts for people become "...".
- Long texts are cut, and end with their size and a digest.
- Arrays in whose order Kafka follows a hash table are sorted.
- Of a quorum, epochs are told as they differ from the one that the run begins with, offsets and
  sizes are words, and what the log holds is "records": no two implementations write the same.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.uuid import ZERO_UUID
from dohle.protocol.schema import Field, Struct
from dohle.records.batch import Batch, batches

Json = Any

_DAY_MS = 86_400_000
_TEXT_SIZE_MAX = 120
_JAVA_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_KAFKA_UUID = re.compile(r"[A-Za-z0-9_-]{22}")

_LEFT_OUT = {"throttle_time_ms"}
_FOR_PEOPLE = {"error_message", "batch_index_error_message", "documentation"}
_WORDS = {
    "broker_epoch": "epoch",
    "cluster_id": "cluster",
    "finalized_features_epoch": "epoch",
    "log_dir": "folder",
    "port": "port",
    "previous_broker_epoch": "epoch",
    "total_bytes": "bytes",
    "usable_bytes": "bytes",
}
_IDS = {
    "producer_id": "producer",
    "producer_id_filters": "producer",
    "producer_id_start": "producer",
    "v3_and_below_producer_id": "producer",
    "session_id": "session",
}
#: In a cluster: other structs have a field of this name that is something else.
_BROKER_EPOCH = ("ReplicaState", "replica_epoch")
#: Of a quorum: epochs, and what depends on how much is in its log.
_QUORUM_EPOCHS = {
    "current_leader_epoch",
    "epoch",
    "last_fetched_epoch",
    "last_offset_epoch",
    "leader_epoch",
    "replica_epoch",
}
_QUORUM_OFFSETS = {
    "end_offset",
    "fetch_offset",
    "high_watermark",
    "last_offset",
    "log_end_offset",
    "log_start_offset",
    "position",
    "size",
}
#: Larger ones are no offsets, but stand for something.
_OFFSET_MAX = 1 << 31
#: Arrays that are told as what they are, a table: by the field that is the key.
_TABLES = {
    ("ApiVersionsResponse", "api_keys"): "api_key",
    ("DescribeConfigsResult", "configs"): "name",
    ("CreatableTopicResult", "configs"): "name",
}
#: Struct and field of arrays without an order.
_SETS = {
    ("JoinGroupResponse", "members"),
    ("DescribedGroup", "members"),
    ("ListGroupsResponse", "groups"),
    ("ListTransactionsResponse", "transaction_states"),
    ("PartitionResponse", "active_producers"),
    ("TransactionState", "topics"),
    ("TopicData", "partitions"),
    ("AddPartitionsToTxnResponse", "results_by_topic_v3_and_below"),
    ("AddPartitionsToTxnResponse", "results_by_transaction"),
    ("AddPartitionsToTxnResult", "topic_results"),
    ("AddPartitionsToTxnTopicResult", "results_by_partition"),
    ("ConsumerGroupDescribeResponse", "groups"),
    ("Assignment", "topic_partitions"),
    ("ConsumerGroupHeartbeatRequest", "topic_partitions"),
    ("Member", "subscribed_topic_names"),
    ("DescribeGroupsResponse", "groups"),
    ("DeleteGroupsResponse", "results"),
    ("DeleteTopicsResponse", "responses"),
    ("CreateTopicsResponse", "topics"),
    ("CreatePartitionsResponse", "results"),
    ("IncrementalAlterConfigsResponse", "responses"),
    ("AlterConfigsResponse", "responses"),
    ("AlterClientQuotasResponse", "entries"),
    ("AlterClientQuotasResponseEntryData", "entity"),
    ("DescribeClientQuotasResponse", "entries"),
    ("EntryData", "entity"),
    ("EntryData", "values"),
    ("AlterUserScramCredentialsResponse", "results"),
    ("DescribeUserScramCredentialsResponse", "results"),
    ("DescribeUserScramCredentialsResult", "credential_infos"),
    ("DescribeConfigsResponse", "results"),
    ("ListConfigResourcesResponse", "config_resources"),
    ("DescribeLogDirsTopic", "partitions"),
    ("AlterReplicaLogDirTopicResult", "partitions"),
    ("ApiVersionsResponse", "supported_features"),
    ("ApiVersionsResponse", "finalized_features"),
    ("MetadataResponse", "topics"),
    ("MetadataResponseTopic", "partitions"),
    ("DeleteRecordsResponse", "topics"),
    ("DeleteRecordsTopicResult", "partitions"),
    ("ListOffsetsResponse", "topics"),
    ("ListOffsetsTopicResponse", "partitions"),
    ("ProduceResponse", "responses"),
    ("TopicProduceResponse", "partition_responses"),
    ("MetadataResponse", "brokers"),
    ("DescribeClusterResponse", "brokers"),
    ("DescribeQuorumResponse", "nodes"),
    ("ElectLeadersResponse", "replica_election_results"),
    ("WriteTxnMarkersResponse", "markers"),
    ("WritableTxnMarkerResult", "topics"),
    ("WritableTxnMarkerTopicResult", "partitions"),
    ("DescribeQuorumResponsePartitionData", "current_voters"),
    ("DescribeQuorumResponsePartitionData", "observers"),
}


@dataclass(frozen=True, slots=True)
class _Id:
    kind: str
    value: object


@dataclass
class Normaliser:
    """Tells what messages say; it remembers the ids that it has seen."""

    #: Before all names that a run has made.
    prefix: str
    #: The machines of a cluster, if it is one.
    hosts: Set[str] = frozenset()
    #: The quorum's epoch as the run begins.
    quorum_epoch: int = 0
    _is_of_quorum: bool = False
    _names: dict[_Id, str] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def name_topic(self, topic_id: bytes, name: str) -> None:
        """Give an id its name."""
        self._names[_Id("uuid", topic_id)] = f"id of {name.removeprefix(self.prefix)}"

    def plain(self, message: Struct, version: int) -> Json:
        """Return what a message says."""
        return self._named(self._struct(message, version))

    def plain_of_quorum(self, message: Struct, version: int) -> Json:
        """Return what a message about the quorum says."""
        self._is_of_quorum = True
        try:
            return self.plain(message, version)
        finally:
            self._is_of_quorum = False

    def _struct(self, struct: Struct, version: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, declared in struct.FIELDS.items():
            value = getattr(struct, name)
            if not declared.versions.covers(version) or name in _LEFT_OUT:
                continue
            if name.endswith("error_code"):
                found[name] = ErrorCode(value).name
            elif value != declared.default_value:
                found[name] = self._value(name, declared, value, version)
                if self.hosts and (type(struct).__name__, name) == _BROKER_EPOCH:
                    found[name] = "epoch"
                if found[name] and (type(struct).__name__, name) in _SETS:
                    found[name].sort(key=self._order)
                if (key := _TABLES.get((type(struct).__name__, name))) and value:
                    found[name] = {
                        str(getattr(row, key)): told
                        for row, told in zip(value, found[name], strict=True)
                    }
        for tag, _ in struct.unknown_tags:
            found[f"tag {tag}"] = "unknown"
        return found

    def _value(self, name: str, declared: Field, value: Any, version: int) -> Any:
        if value is None:
            return None
        if name in _FOR_PEOPLE:
            return "..." if value else ""
        if declared.kind == "record_data":
            if self._is_of_quorum:
                return "records" if value else ""
            return self._records(bytes(value))
        if isinstance(value, Struct):
            return self._struct(value, version)
        if isinstance(value, tuple):
            return [self._value(name, declared, each, version) for each in value]
        if name in _WORDS:
            return _WORDS[name]
        if declared.kind == "uuid" or declared.element == "uuid":
            return _Id("uuid", value) if value != ZERO_UUID else "none"
        return self._simple(name, value)

    def _simple(self, name: str, value: Any) -> Any:
        if isinstance(value, bool | float):
            return value
        if isinstance(value, int):
            if self.hosts and (word := self._word_of_cluster(name, value)):
                return word
            return _Id(_IDS[name], value) if name in _IDS and value >= 0 else self._number(value)
        if isinstance(value, bytes):
            return value.replace(self.prefix.encode(), b"").decode("ascii", "backslashreplace")
        assert isinstance(value, str)
        if name == "host" and value in self.hosts:
            return "host"
        if name == "member_id" and _KAFKA_UUID.fullmatch(value):
            return _Id("member", value)
        return value.replace(self.prefix, "")

    def _word_of_cluster(self, name: str, value: int) -> str | None:
        if name == "current_metadata_offset" and value > 0:
            return "offset"
        if not self._is_of_quorum:
            return None
        if name in _QUORUM_EPOCHS and value > 0:
            return f"epoch{value - self.quorum_epoch:+}".removesuffix("+0")
        if name in _QUORUM_OFFSETS and 0 < value < _OFFSET_MAX:
            return "offset"
        return None

    def _number(self, value: int) -> Any:
        return "now" if abs(value - time.time() * 1000) < _DAY_MS else value

    def _records(self, data: bytes) -> Json:
        try:
            return [self._batch(batch) for batch in batches(data)]
        except KafkaError:
            return f"{len(data)} bytes"

    def _batch(self, batch: Batch) -> Json:
        try:
            records: Json = [
                [self._number(record.timestamp), _text(record.key), _text(record.value)]
                + [[name, _text(value)] for name, value in record.headers]
                for record in batch
            ]
        except KafkaError:
            records = "broken"
        found: dict[str, Any] = {"offsets": f"{batch.base_offset}-{batch.last_offset}"}
        found["epoch"] = batch.partition_leader_epoch
        if batch.magic != 2:
            found["magic"] = batch.magic
        if batch.producer_id >= 0:
            found["producer_id"] = _Id("producer", batch.producer_id)
            found["producer"] = f"epoch {batch.producer_epoch}, sequence {batch.base_sequence}"
        flags = [batch.compression.name] if batch.compression else []
        flags += ["transactional"] if batch.is_transactional else []
        flags += ["control"] if batch.is_control else []
        flags += ["append time"] if batch.timestamp_type else []
        if flags:
            found["flags"] = ", ".join(flags)
        return {**found, "records": records}

    def _order(self, value: Any) -> str:
        """What an element of a set is sorted by: ids that have no name yet do not count."""

        def shown(each: object) -> str:
            assert isinstance(each, _Id)
            return self._names.get(each, "")

        return _JAVA_UUID.sub("", json.dumps(value, default=shown))

    def _named(self, value: Any) -> Json:
        if isinstance(value, dict):
            return {name: self._named(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self._named(each) for each in value]
        if isinstance(value, str):
            return _short(_JAVA_UUID.sub(lambda found: self._name(_Id("", found[0])), value))
        return self._name(value) if isinstance(value, _Id) else value

    def _name(self, found: _Id) -> str:
        if found not in self._names:
            self._counts[found.kind] = number = self._counts.get(found.kind, 0) + 1
            self._names[found] = f"{found.kind}#{number}"
        return self._names[found]


def _text(data: bytes | None) -> str | None:
    return None if data is None else bytes(data).decode("ascii", "backslashreplace")


def _short(text: str) -> str:
    if len(text) <= _TEXT_SIZE_MAX:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{text[:20]}... {len(text)} characters, {digest}"
