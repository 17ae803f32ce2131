"""The contents of control records.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import BrokerId, Uuid
from dohle.protocol.fields import array, int16, int32, int64, string, struct, uint16, uuid
from dohle.protocol.schema import Data, Struct


class EndTxnMarker(Data, versions="0", flexible="none"):
    coordinator_epoch: int = int32("0+")


class KRaftVersionRecord(Data, versions="0", flexible="0+"):
    version: int = int16("0+")
    kraft_version: int = int16("0+")


class LeaderChangeMessageVoter(Struct):
    voter_id: int = int32("0+")
    voter_directory_id: Uuid = uuid("1+")


class LeaderChangeMessage(Data, versions="0-1", flexible="0+"):
    version: int = int16("0+")
    leader_id: BrokerId = int32("0+")
    voters: tuple[LeaderChangeMessageVoter, ...] = array(LeaderChangeMessageVoter, "0+")
    granting_voters: tuple[LeaderChangeMessageVoter, ...] = array(LeaderChangeMessageVoter, "0+")


class SnapshotFooterRecord(Data, versions="0", flexible="0+"):
    version: int = int16("0+")


class SnapshotHeaderRecord(Data, versions="0", flexible="0+"):
    version: int = int16("0+")
    last_contained_log_timestamp: int = int64("0+")


class Endpoint(Struct):
    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")


class KRaftVersionFeature(Struct):
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class VotersRecordVoter(Struct):
    voter_id: BrokerId = int32("0+")
    voter_directory_id: Uuid = uuid("0+")
    endpoints: tuple[Endpoint, ...] = array(Endpoint, "0+")
    kraft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature, "0+")


class VotersRecord(Data, versions="0", flexible="0+"):
    version: int = int16("0+")
    voters: tuple[VotersRecordVoter, ...] = array(VotersRecordVoter, "0+")
