"""SyncGroup (14) to a classic group.

- PreparingRebalance: 27. A wrong generation: 22. From v5 on the protocol in the member's request is
  checked: 23.
- CompletingRebalance: the member waits for the leader. The leader's request holds all assignments;
  they are written, and when that is committed all waiting members are answered. A member that the
  leader left out gets an empty assignment.
- Stable: the assignment, at once.
- If the log refuses the assignment, all waiting members get the error and the group rebalances
  again.
"""

from __future__ import annotations

from collections.abc import Mapping

from dohle.coordination.effects import Effects, Reply, Ticket
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.steps import PlainSteps
from dohle.groups.classic.group import ClassicGroup, ClassicState
from dohle.groups.classic.member import ClassicMember
from dohle.groups.classic.rebalance import Rebalances
from dohle.groups.classic.records import group_record
from dohle.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def assignments_given(request: SyncGroupRequest) -> PlainSteps[dict[str, bytes]]:
    """Return the assignments of a request by member id; it may name any number of members."""
    given = {}
    for assigned in request.assignments:
        given[assigned.member_id] = assigned.assignment
        yield
    return given


class Syncs:
    """Distributes the assignments made by the leaders of classic groups."""

    def __init__(self, rebalances: Rebalances) -> None:
        self._rebalances = rebalances

    def sync(
        self,
        group: ClassicGroup,
        request: SyncGroupRequest,
        given: Mapping[str, bytes],
        ticket: Ticket,
    ) -> Effects:
        """Return a member's assignment, now or later."""
        group.validate_member(request.member_id, request.group_instance_id)
        group.validate_generation(request.generation_id)
        if _differs(request.protocol_type, group.protocol_type) or _differs(
            request.protocol_name, group.protocol_name
        ):
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"group {group.group_id} uses {group.protocol_type} {group.protocol_name}",
            )
        member = group.members[request.member_id]
        if group.state is ClassicState.PREPARING_REBALANCE:
            raise KafkaError(
                ErrorCode.REBALANCE_IN_PROGRESS, f"group {group.group_id} waits for its members"
            )
        self._rebalances.has_synced(group, member.member_id)
        if group.state is ClassicState.STABLE:
            return Effects().reply(ticket, _assigned(group, member.assignment))
        effects = Effects(replies=group.await_sync(member, ticket))
        if member.member_id == group.leader_id:
            self._assign(group, given, effects)
        return effects

    def _assign(self, group: ClassicGroup, given: Mapping[str, bytes], effects: Effects) -> None:
        """Write the leader's assignment; the record makes the group Stable."""
        assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
        effects.records.append(group_record(group, assignments))
        answered_before = list(effects.replies)
        waiting: list[tuple[ClassicMember, Reply]] = []
        for member in group.members.values():
            response = _assigned(group, assignments[member.member_id])
            waiting += ((member, reply) for reply in group.answer_sync(member, response))
        for member, reply in waiting:
            self._rebalances.keep_session(group, member)
            effects.replies.append(reply)

        def undo(error: KafkaError) -> Effects:
            after = Effects(replies=answered_before)
            for _, (ticket, _) in waiting:
                after.reply(ticket, error)
            if group.state is not ClassicState.COMPLETING_REBALANCE:
                return after
            after.replies += self._rebalances.withhold_assignment(group, error.code)
            return after.and_then(
                self._rebalances.rebalance(group, "the assignment could not be written")
            )

        effects.undo = undo


def _differs(wanted: str | None, actual: str | None) -> bool:
    return wanted is not None and actual is not None and wanted != actual


def _assigned(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=assignment,
    )
