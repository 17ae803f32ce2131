"""The state file of the quorum.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import Uuid
from dohle.protocol.fields import array, int32, int64, string, uuid
from dohle.protocol.schema import Data, Struct


class Voter(Struct):
    voter_id: int = int32("0")


class QuorumStateData(Data, versions="0-1", flexible="0+"):
    cluster_id: str = string("0")
    leader_id: int = int32("0+", default=-1)
    leader_epoch: int = int32("0+", default=-1)
    voted_id: int = int32("0+", default=-1)
    voted_directory_id: Uuid = uuid("1+")
    applied_offset: int = int64("0")
    current_voters: tuple[Voter, ...] | None = array(Voter, "0", nullable=True)
