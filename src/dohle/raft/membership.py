"""Who votes in the quorum: ``kraft.version`` and the voters, as control records of its log say.

At ``kraft.version`` 0 each node takes the voters from its own configuration, and the log says
nothing of them. From 1 on (KIP-853) the log does: a KRaftVersionRecord and a VotersRecord, also at
the start of each snapshot. A voter is a node with one directory, so one that was formatted anew is
another voter. What holds is the newest record in the log, whether it is committed or not; a
snapshot holds what was so at its own offset. So this is kept by offset.

``storage format`` leaves its voters in a snapshot ``0-0``, which is never sent to anybody: the
first leader repeats them in the log.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dohle.core.ids import BrokerId, Uuid
from dohle.protocol.messages.records.control import (
    Endpoint,
    KRaftVersionFeature,
    KRaftVersionRecord,
    VotersRecord,
    VotersRecordVoter,
)
from dohle.protocol.schema import VersionRange
from dohle.records.control import ControlRecordType

#: The levels of kraft.version that this release knows.
KRAFT_VERSIONS = VersionRange(0, 1)

#: A control record: its type and its encoded value.
ControlRecord = tuple[ControlRecordType, bytes]

_MEMBERSHIP_TYPES = frozenset({ControlRecordType.KRAFT_VERSION, ControlRecordType.KRAFT_VOTERS})

#: The offset of what ``storage format`` has left.
_BEFORE_THE_LOG = -1


class VoterEndpoint(NamedTuple):
    """Where a voter is reached by other controllers."""

    #: In upper case, in whatever case others write it (replication rule M6).
    listener: str
    host: str
    port: int


def endpoints_of(told: Iterable[Any]) -> tuple[VoterEndpoint, ...]:
    """Read the endpoints of a node in a message or a record: each has its own class of them."""
    return tuple(VoterEndpoint(each.name.upper(), each.host, each.port) for each in told)


@dataclass(frozen=True, slots=True)
class Voter:
    """A member of the quorum."""

    id: BrokerId
    directory_id: Uuid
    endpoints: tuple[VoterEndpoint, ...] = ()
    kraft_versions: VersionRange = KRAFT_VERSIONS

    def is_same_node(self, other: Voter) -> bool:
        """Tell whether both are the same node with the same directory."""
        return (self.id, self.directory_id) == (other.id, other.directory_id)


@dataclass(frozen=True, slots=True)
class Membership:
    """What the log says of the quorum at some offset."""

    kraft_version: int = 0
    #: Empty at kraft.version 0: then the configuration says who they are.
    voters: tuple[Voter, ...] = ()

    def with_voter(self, voter: Voter) -> Membership:
        """Replace the entry of a voter."""
        entries = (voter if each.is_same_node(voter) else each for each in self.voters)
        return replace(self, voters=tuple(entries))

    def control_records(self) -> list[ControlRecord]:
        """Return the records that say so; none at kraft.version 0."""
        if self.kraft_version < 1:
            return []
        version = KRaftVersionRecord(kraft_version=self.kraft_version)
        voters = VotersRecord(voters=tuple(map(_encoded, self.voters)))
        return [
            (ControlRecordType.KRAFT_VERSION, version.encode(0)),
            (ControlRecordType.KRAFT_VOTERS, voters.encode(0)),
        ]

    def after(self, records: Iterable[ControlRecord]) -> Membership:
        """Return what holds after some more control records."""
        found = self
        for type, value in records:
            if type is ControlRecordType.KRAFT_VERSION:
                version, _ = KRaftVersionRecord.decode(0, value)
                found = replace(found, kraft_version=version.kraft_version)
            elif type is ControlRecordType.KRAFT_VOTERS:
                voters, _ = VotersRecord.decode(0, value)
                found = replace(found, voters=tuple(map(_decoded, voters.voters)))
        return found


def _encoded(voter: Voter) -> VotersRecordVoter:
    return VotersRecordVoter(
        voter_id=voter.id,
        voter_directory_id=voter.directory_id,
        endpoints=tuple(Endpoint(name=n, host=h, port=p) for n, h, p in voter.endpoints),
        kraft_version_feature=KRaftVersionFeature(
            min_supported_version=voter.kraft_versions.lowest,
            max_supported_version=voter.kraft_versions.highest,
        ),
    )


def _decoded(voter: VotersRecordVoter) -> Voter:
    versions = voter.kraft_version_feature
    return Voter(
        voter.voter_id,
        voter.voter_directory_id,
        endpoints_of(voter.endpoints),
        VersionRange(versions.min_supported_version, versions.max_supported_version),
    )


class MembershipHistory:
    """What the log has said of the quorum, from the newest snapshot to its end."""

    def __init__(self) -> None:
        self._offsets: list[int] = [_BEFORE_THE_LOG]
        self._entries: list[Membership] = [Membership()]

    @property
    def latest(self) -> Membership:
        """What holds now."""
        return self._entries[-1]

    @property
    def latest_offset(self) -> int:
        """The offset of the record that says what holds now; -1 if the log has none."""
        return self._offsets[-1]

    @property
    def is_in_log(self) -> bool:
        """Tell whether a record of the log, or a snapshot of it, says what holds now."""
        return self._offsets[-1] > _BEFORE_THE_LOG

    def at(self, offset: int) -> Membership:
        """Return what held after the record with this offset."""
        return self._entries[max(bisect_right(self._offsets, offset) - 1, 0)]

    def note(self, offset: int, records: Sequence[ControlRecord]) -> None:
        """Take in the control records of a batch that ends at an offset, or of a snapshot there."""
        if any(type in _MEMBERSHIP_TYPES for type, _ in records):
            self._offsets.append(offset)
            self._entries.append(self.latest.after(records))

    def truncate(self, offset: int) -> None:
        """Forget what records from this offset on have said (rule R85)."""
        kept = max(bisect_left(self._offsets, offset), 1)
        del self._offsets[kept:], self._entries[kept:]

    def forget_before(self, offset: int) -> None:
        """Keep nothing that a snapshot at this offset has replaced."""
        first = max(bisect_right(self._offsets, offset) - 1, 0)
        del self._offsets[:first], self._entries[:first]


def membership_to_repeat(history: MembershipHistory, own: Voter) -> Membership | None:
    """Return what a new leader writes behind its LeaderChange record, if anything.

    That is what the log does not say yet: the voters of the formatter, or its own changed entry.
    """
    latest = history.latest
    if latest.kraft_version < 1:
        return None
    wanted = latest.with_voter(own)
    return wanted if wanted != latest or not history.is_in_log else None
