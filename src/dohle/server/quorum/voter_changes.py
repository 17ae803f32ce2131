"""Requests of clients to add or remove a voter: AddRaftVoter and RemoveRaftVoter."""

from __future__ import annotations

from dohle.metadata.decision import ApiError
from dohle.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from dohle.protocol.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)

VoterChange = AddRaftVoterRequest | RemoveRaftVoterRequest
VoterChanged = AddRaftVoterResponse | RemoveRaftVoterResponse


def voter_change_failed(request: VoterChange, error: ApiError) -> VoterChanged:
    """Return the response to a request that did not reach the quorum."""
    if isinstance(request, AddRaftVoterRequest):
        return AddRaftVoterResponse(error_code=error.code, error_message=error.message)
    return RemoveRaftVoterResponse(error_code=error.code, error_message=error.message)
