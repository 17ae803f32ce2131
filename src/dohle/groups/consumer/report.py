"""What a member reports in a heartbeat, put in order ahead of its command.

It may name any number of topics, so that is done in steps.
"""

from __future__ import annotations

from typing import NamedTuple

from dohle.core.ids import Uuid
from dohle.core.steps import PlainSteps, sorted_in_steps
from dohle.groups.assignors.assignment import Assignment
from dohle.protocol.codec.unsigned_varint import PreparedStrings, prepare_strings
from dohle.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


class Report(NamedTuple):
    """Null in the request, and None here, means unchanged."""

    owned: Assignment | None
    subscribed_topic_names: frozenset[str] | None
    #: The same, as its record has them.
    sorted_names: PreparedStrings | None


def report_of(request: ConsumerGroupHeartbeatRequest) -> PlainSteps[Report]:
    """Return what a heartbeat reports."""
    owned = None
    if request.topic_partitions is not None:
        parts: dict[Uuid, set[int]] = {}
        for topic in request.topic_partitions:
            parts.setdefault(topic.topic_id, set()).update(topic.partitions)
            yield
        owned = {}
        for topic_id, partitions in parts.items():
            owned[topic_id] = frozenset(partitions)
            yield
    if request.subscribed_topic_names is None:
        return Report(owned, None, None)
    names = frozenset(request.subscribed_topic_names)
    ordered = yield from sorted_in_steps(names)
    return Report(owned, names, (yield from prepare_strings(ordered)))
