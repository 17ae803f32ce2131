"""What a produce request that the shortcut has served is answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from dohle.core.errors import ErrorCode, KafkaError
from dohle.protocol.framing import encode_response
from dohle.protocol.messages.produce import ProduceResponse, TopicProduceResponse
from dohle.server.net.outcome import Frame, Gate
from dohle.server.partitions.appends import Appended, is_uncommitted, partition_response
from dohle.server.partitions.leader_hints import LeaderHints
from dohle.server.shortcuts.produce_frames import Topic, answer_format

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer

#: acks
_ALL = -1
# Looking up a member of an enum is slow.
_NO_ERROR = ErrorCode.NONE
_TOO_FEW = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
_NO_GATES: dict[int, Gate] = {}


class Asked(Protocol):
    """What the requests of a producer have in common."""

    version: int
    acks: int
    timeout_ms: int
    listener: str


class ReplyToSeveral:
    """Makes the answer for several partitions when all is written, or committed."""

    __slots__ = ("_asked", "_broker", "_correlation_id", "_gates", "_outcomes", "_topics")

    def __init__(
        self,
        asked: Asked,
        broker: BrokerServer,
        correlation_id: int,
        topics: Sequence[Topic],
        outcomes: Sequence[Appended | KafkaError],
    ) -> None:
        self._asked = asked
        self._broker = broker
        self._correlation_id = correlation_id
        self._topics = topics
        self._outcomes = outcomes
        #: What is waited for, by the number of the partition in the request.
        self._gates = _NO_GATES

    def __call__(self, code: ErrorCode | None = None) -> Frame | Gate:
        """Make the answer, or return what it has to wait for; with a code it has waited."""
        answer = self._good_answer()
        if answer is not None:
            # The dispatcher counts one for each request.
            self._broker.requests.of("Produce").errors[0] += len(self._outcomes) - 1
            return [answer]
        if code is None and self._asked.acks == _ALL:
            self._gates = self._uncommitted()
            if self._gates:
                return self._broker.commits.joint_gate(tuple(self._gates.values()))
        codes = [self._commit_error(number) for number in range(len(self._outcomes))]
        return tell(
            self._broker,
            self._asked,
            self._correlation_id,
            self._topics,
            self._outcomes,
            codes,
        )

    def _good_answer(self) -> bytes | None:
        """Make the answer if nothing was refused, and nothing has to be waited for."""
        outcomes = iter(self._outcomes)
        waits = self._asked.acks == _ALL
        form = answer_format(self._asked.version)
        _, pack, has_log_start, behind_part, behind_topic, _ = form
        pieces = []
        for opening, _, _, indexes in self._topics:
            pieces.append(opening)
            for index in indexes:
                outcome = next(outcomes)
                if isinstance(outcome, KafkaError):
                    return None
                partition, (first, last, _, time, _, _) = outcome
                log = partition.log
                if (waits and log.high_watermark <= last) or not log.disk.is_online():
                    return None
                if has_log_start:
                    start = log.log_start_offset
                    pieces.append(pack(index, 0, first, time, start, behind_part))
                else:
                    pieces.append(pack(index, 0, first, time, behind_part))
            pieces.append(behind_topic)
        if self._gates and any(gate.code is _TOO_FEW for gate in self._gates.values()):
            return None
        return form.frame(self._correlation_id, pieces)

    def _uncommitted(self) -> dict[int, Gate]:
        """Return what has to be waited for."""
        commits, timeout_ms = self._broker.commits, self._asked.timeout_ms
        return {
            number: commits.gate(outcome[0], timeout_ms)
            for number, outcome in enumerate(self._outcomes)
            if not isinstance(outcome, KafkaError) and is_uncommitted(outcome)
        }

    def _commit_error(self, number: int) -> ErrorCode:
        """Tell why the records of a partition are not known to be committed, if they are not."""
        gate, outcome = self._gates.get(number), self._outcomes[number]
        if gate is None or gate.code is None or isinstance(outcome, KafkaError):
            return _NO_ERROR
        partition, info = outcome
        # The gate may have waited for more than these records.
        is_committed = partition.log.high_watermark > info.last_offset
        return _NO_ERROR if is_committed and gate.code is not _TOO_FEW else gate.code


def tell(
    broker: BrokerServer,
    asked: Asked,
    correlation_id: int,
    topics: Sequence[Topic],
    outcomes: Sequence[Appended | KafkaError],
    commit_errors: Sequence[ErrorCode],
) -> Frame:
    """Make an answer of any kind, and count the errors in it."""
    told, rest = [], iter(zip(outcomes, commit_errors, strict=True))
    hints = LeaderHints(broker, asked.version, asked.listener)
    errors = broker.requests.of("Produce").errors
    # The dispatcher counts one request without an error.
    errors[0] -= 1
    for _, name, topic_id, indexes in topics:
        partitions = tuple(
            hints.add(name, topic_id, partition_response(index, *pair))
            for index, pair in zip(indexes, rest, strict=False)
        )
        told.append(
            TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=partitions)
        )
        for partition in partitions:
            errors[partition.error_code] += 1
    response = hints.locate(ProduceResponse(responses=tuple(told)))
    return list(encode_response(response, asked.version, correlation_id))
