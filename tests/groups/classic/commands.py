"""Commands of classic groups, with what their handlers prepare ahead."""

from __future__ import annotations

from dohle.coordination.effects import Effects, Ticket
from dohle.core.steps import finish
from dohle.groups.classic.protocols import offer_at_once
from dohle.groups.classic.sync import assignments_given
from dohle.groups.coordinator import GroupCoordinator
from dohle.groups.group import Caller
from dohle.protocol.messages.join_group import JoinGroupRequest
from dohle.protocol.messages.sync_group import SyncGroupRequest


def join(
    machine: GroupCoordinator, request: JoinGroupRequest, ticket: Ticket, caller: Caller
) -> Effects:
    """Let a member join."""
    offered = offer_at_once((each.name, each.metadata) for each in request.protocols)
    return machine.classic.join_group(request, offered, ticket, caller)


def sync(machine: GroupCoordinator, request: SyncGroupRequest, ticket: Ticket) -> Effects:
    """Ask for a member's assignment."""
    return machine.classic.sync_group(request, finish(assignments_given(request)), ticket)


def delete_group(machine: GroupCoordinator, group_id: str, ticket: Ticket) -> Effects:
    """Delete a group."""
    return machine.delete_group(finish(machine.prepare_deletion(group_id)), ticket)
