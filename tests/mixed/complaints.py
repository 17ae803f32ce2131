"""What nodes of either kind must not log; each exception with its reason."""

from __future__ import annotations

import re
from collections.abc import Iterator

#: An error of either kind with the line behind it, a traceback of dohle's, an end of Kafka's.
_COMPLAINT = re.compile(
    r"^.* (?:ERROR|FATAL|CRITICAL) .*$(?:\n.*Exception.*)?"
    r"|^Traceback \(most.*\n(?:[ \t].*\n|\n)*.*"
    r"|^.*Encountered fatal fault.*$",
    re.M,
)

#: What is allowed, and why nobody needs to worry.
ALLOWED = {
    r"to exist, but it was missing. Creating": (
        "Kafka: that is how it takes any new replica of a topic that it knows"
    ),
    r"Unexpected error handling request .*\n.*NotControllerException": (
        "Kafka: a controller that has just lost its office, or does not have it yet, refuses what "
        "nodes send to it"
    ),
    r"Exceptionally slow controller event|controller event queue overloaded": (
        "Kafka: its events wait while most of the quorum is away, or the machine is busy"
    ),
    r"Error processing append operation .*\n.*NotEnoughReplicasException": (
        "Kafka: it tells each write that it refuses while too few replicas are in sync"
    ),
    r"Error processing append operation .*\n.*OutOfOrderSequenceException": (
        "Kafka: it tells each batch that comes before an earlier one, which its producer sends "
        "again because the last leader refused it; the records are judged"
    ),
    r"handleResponse: unexpected callback exception\n.*PromotionState.withAssignment": (
        "Kafka: of a move to another directory it has heard by the metadata log before the answer "
        "to its request came, and is done with it"
    ),
    r"Execution of HighWatermarkUpdate failed .*\n.*New committed offset": (
        "Kafka: a coordinator that has just loaded its partition is told of a high watermark of "
        "before that, and keeps the later one; logs, records and offsets are judged"
    ),
}
_ALLOWED = re.compile("|".join(ALLOWED))


def complaints_in(log: str) -> Iterator[str]:
    """Return the complaints that nothing excuses."""
    for found in _COMPLAINT.finditer(log):
        if not _ALLOWED.search(found[0]):
            yield found[0]
