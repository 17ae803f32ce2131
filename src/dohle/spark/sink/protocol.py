"""Exactly once: what is known of a query's batches, and what follows from it. Pure (ADR 8).

Each query has one record, its *standing*: which run of the query may write, and the last decided
batch with the transactions that hold its rows. Rules:

- A batch is decided once, by the standing that names it. From then on its transactions can only be
  committed; if the batch comes again, it is finished from the standing and nothing is written.
- Only the run that took over last writes, decides and aborts. A run that was replaced never comes
  back: its id is remembered.
- A transactional id is used by one attempt of one task at a time. Requesting its identity aborts
  what is open under it, so the right to do so is given once: by a *claim*, an identity of another
  id under which nothing is ever written, and which is never given twice. The attempt whose claim
  follows the last known one uses the task's usual id; any other attempt has an id of its own, and
  after a batch that such an attempt won, the usual ids are new.
- The usual id is reused when another batch was decided in between: then nobody asks for the end of
  the first one any more, and would be told that it is unknown.
- What is open under an id of the query and is not part of the decision is a stray: of this run, or
  of an earlier one. It is aborted before the decision, and once more after it, together with ids
  under which nothing is open yet. An attempt reads the standing after it has its id: so it either
  sees that it is too late, or is fenced.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any

from dohle.client import PreparedTransaction
from dohle.client.producer.batch import ProducerIdentity
from dohle.core.ids import ProducerId, TransactionalId

#: How many replaced runs are remembered.
RUNS_KEPT = 32
#: The states of an id with an open transaction, and of one with none yet.
ONGOING, EMPTY = "Ongoing", "Empty"
_CLAIM = "/claim/"
_FORMAT = 1
_V1, _V2 = 1, 2


class Superseded(RuntimeError):
    """Another run of the same query has taken over."""

    def __init__(self, query_id: str) -> None:
        super().__init__(
            f"query {query_id} was started again elsewhere, from the same checkpoint: this run may "
            "not write any more"
        )


class OutOfStep(RuntimeError):
    """A batch that is older than the last one decided."""

    def __init__(self, query_id: str, batch_id: int, decided: int) -> None:
        super().__init__(
            f"batch {batch_id} of query {query_id} came after batch {decided} was written: the "
            "checkpoint is older than what the query has written. Start from a new checkpoint, "
            "with startingOffsets after what is written"
        )


class TooLate(RuntimeError):
    """The batch was decided, or abandoned, while this attempt of a task started."""

    def __init__(self, batch: Batch) -> None:
        super().__init__(f"batch {batch.batch_id} of query {batch.query_id} is over")


class StandingUnreadable(RuntimeError):
    """The query's standing was written by a newer version, or by somebody else."""


class Turn(Enum):
    """What a task has to do."""

    #: The run is new: first make it the one that writes.
    TAKE_OVER = auto()
    WRITE = auto()
    #: The batch is decided: write nothing.
    SKIP = auto()


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch of one run of a query."""

    query_id: str
    run_id: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class TaskResult:
    """A task's report to the driver: its transaction, if it had rows to write."""

    batch: Batch
    task: int
    transaction: PreparedTransaction | None
    #: Whether the batch was already decided, so that the task wrote nothing.
    is_skipped: bool = False
    #: Whether the transaction has no timeout.
    is_two_phase: bool = False
    #: The claim by which the task got its usual id; None if it has another id.
    claim: ProducerIdentity | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The transactions that make up a batch."""

    batch_id: int
    transactions: tuple[PreparedTransaction, ...]
    #: Whether none of them can time out.
    is_two_phase: bool = False

    @property
    def ids(self) -> frozenset[TransactionalId]:
        """The transactional ids."""
        return frozenset(each.transactional_id for each in self.transactions)


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of a query."""

    run_id: str
    #: Counts the runs, so that ids show which run is older.
    run_number: int
    #: Part of the usual ids.
    generation: int
    decision: Decision | None = None
    replaced_runs: tuple[str, ...] = ()
    #: The batch that this run has failed at.
    given_up: int | None = None
    #: The last known claim of each task, in this generation.
    claims: Mapping[int, ProducerIdentity] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decide:
    """Write this standing, then commit its decision."""

    standing: Standing
    decision: Decision


@dataclass(frozen=True, slots=True)
class Finish:
    """The batch was already decided: commit that, and abort what was written again."""

    decision: Decision
    abort: tuple[PreparedTransaction, ...]


# Tasks


def task_turn(standing: Standing | None, batch: Batch) -> Turn:
    """Return what a task of a batch does; raise if its run was replaced."""
    if standing is None or standing.run_id != batch.run_id:
        if standing is not None and batch.run_id in standing.replaced_runs:
            raise Superseded(batch.query_id)
        return Turn.TAKE_OVER
    _check_not_given_up(standing, batch)
    return Turn.SKIP if _is_decided(standing, batch) else Turn.WRITE


def taken_over(standing: Standing | None, batch: Batch) -> Standing:
    """Return the standing of a query whose new run starts to write."""
    if standing is None:
        return Standing(batch.run_id, run_number=1, generation=batch.batch_id)
    return replace(
        standing,
        run_id=batch.run_id,
        run_number=standing.run_number + 1,
        generation=batch.batch_id,
        given_up=None,
        claims={},
        replaced_runs=(*standing.replaced_runs, standing.run_id)[-RUNS_KEPT:],
    )


def check_in_time(standing: Standing | None, batch: Batch) -> None:
    """Raise if an attempt may not write: checked after it got its id, before it starts."""
    if task_turn(standing, batch) is not Turn.WRITE:
        raise TooLate(batch)


# The driver


def commit_turn(standing: Standing | None, results: Collection[TaskResult]) -> Decide | Finish:
    """Return what the driver does when all tasks have written; raise if its run was replaced."""
    batch = _batch_of(results)
    transactions = transactions_of(results)
    if standing is None or standing.run_id != batch.run_id:
        raise Superseded(batch.query_id)
    _check_not_given_up(standing, batch)
    if _is_decided(standing, batch):
        assert standing.decision is not None
        ended = set(standing.decision.transactions)
        return Finish(standing.decision, tuple(each for each in transactions if each not in ended))
    decision = Decision(
        batch.batch_id,
        transactions,
        is_two_phase=all(each.is_two_phase for each in results if each.transaction),
    )
    after = replace(standing, decision=decision)
    if all(each.claim is not None for each in results if each.transaction is not None):
        claims = {each.task: each.claim for each in results if each.claim is not None}
        after = replace(after, claims={**standing.claims, **claims})
    else:
        after = replace(after, generation=batch.batch_id + 1, claims={})
    return Decide(after, decision)


def may_abort(standing: Standing | None, batch: Batch) -> bool:
    """Tell whether the driver may abort what its tasks wrote: not if the batch is decided."""
    if standing is None or standing.run_id != batch.run_id:
        return False
    return standing.decision is None or standing.decision.batch_id < batch.batch_id


def gave_up(standing: Standing, batch: Batch) -> Standing:
    """Return the standing of a query that has failed at a batch."""
    return replace(standing, given_up=batch.batch_id)


def transactions_of(results: Iterable[TaskResult]) -> tuple[PreparedTransaction, ...]:
    """Return the transactions that tasks have left, in the order of the tasks."""
    ordered = sorted(results, key=lambda each: each.task)
    found = tuple(each.transaction for each in ordered if each.transaction is not None)
    if len({each.transactional_id for each in found}) != len(found):
        raise ValueError("two tasks have used the same transactional id")
    return found


def _batch_of(results: Collection[TaskResult]) -> Batch:
    batches = {each.batch for each in results}
    if len(batches) != 1:
        raise ValueError(f"the results of one batch speak of {len(batches)}")
    return batches.pop()


def _check_not_given_up(standing: Standing, batch: Batch) -> None:
    if standing.given_up == batch.batch_id:
        raise TooLate(batch)


def _is_decided(standing: Standing, batch: Batch) -> bool:
    decision = standing.decision
    if decision is None or decision.batch_id < batch.batch_id:
        return False
    if decision.batch_id > batch.batch_id:
        raise OutOfStep(batch.query_id, batch.batch_id, decision.batch_id)
    return True


# Transactional ids


def ledger_id(prefix: str, query_id: str) -> TransactionalId:
    """Return the id under which a query's standing is written."""
    return TransactionalId(f"{prefix}/{query_id}")


def query_prefix(prefix: str, query_id: str) -> str:
    """Return the prefix of the ids of all tasks of a query."""
    return f"{prefix}/{query_id}/"


def claim_id(prefix: str, standing: Standing, batch: Batch, task: int) -> TransactionalId:
    """Return the id whose identities are the claims to a task's usual id."""
    run, generation = standing.run_number, standing.generation
    return TransactionalId(
        f"{query_prefix(prefix, batch.query_id)}{run}/{generation}{_CLAIM}{task}"
    )


def is_first_claim(standing: Standing, task: int, claim: ProducerIdentity) -> bool:
    """Tell whether a claim follows the last known one: only one attempt has it."""
    last = standing.claims.get(task)
    if last is None:
        return claim.epoch == 0
    return claim == last._replace(epoch=last.epoch + 1)


def usual_id(prefix: str, standing: Standing, batch: Batch, task: int) -> TransactionalId:
    """Return the id for the first claim: the same for every other batch with rows."""
    begin = query_prefix(prefix, batch.query_id)
    return TransactionalId(f"{_turn_prefix(begin, standing, _turn(begin, standing, batch))}{task}")


def _turn_prefix(begin: str, standing: Standing, turn: int) -> str:
    return f"{begin}{standing.run_number}/{standing.generation}/{turn}/"


def _turn(begin: str, standing: Standing, batch: Batch) -> int:
    """Return which usual ids are the batch's: not those that the decision names.

    Every other batch would do, if those without rows were decided too.
    """
    turn = batch.batch_id % 2
    decided = standing.decision.ids if standing.decision is not None else frozenset()
    taken = _turn_prefix(begin, standing, turn)
    return 1 - turn if any(each.startswith(taken) for each in decided) else turn


def attempt_id(
    prefix: str, standing: Standing, batch: Batch, task: int, task_attempt_id: int
) -> TransactionalId:
    """Return the id of any other attempt, which nobody else ever uses."""
    usual = usual_id(prefix, standing, batch, task)
    return TransactionalId(f"{usual}/{batch.batch_id}.{task_attempt_id}")


def strays(
    prefix: str,
    batch: Batch,
    states: Mapping[str, str],
    standing: Standing,
    keep: Collection[str],
) -> list[TransactionalId]:
    """Return the ids, among those that are open or empty, that are to be fenced.

    Those with something open, of this run or an earlier one; and those with nothing open yet, of
    this batch or, when the run commits for the first time, of the runs since the one that decided
    last, which has fenced those before it. Decided ids are kept in any case, and those of a newer
    run are not included.
    """
    decided = standing.decision.ids if standing.decision is not None else frozenset()
    begin = query_prefix(prefix, batch.query_id)
    decider = max((_run_number(begin, each) or 0 for each in decided), default=0)
    usual = _turn_prefix(begin, standing, _turn(begin, standing, batch))
    found = []
    for each, state in states.items():
        number = _run_number(begin, each)
        if number is None or number > standing.run_number or each in keep or each in decided:
            continue
        if _CLAIM in each[len(begin) :]:
            continue
        if number < standing.run_number:
            is_stray = state == ONGOING or decider <= number
        else:
            is_stray = state == ONGOING or _is_of_batch(usual, each, batch)
        if is_stray:
            found.append(TransactionalId(each))
    return found


def _run_number(begin: str, transactional_id: str) -> int | None:
    if not transactional_id.startswith(begin):
        return None
    number = transactional_id[len(begin) :].split("/", 1)[0]
    return int(number) if number.isdecimal() else None


def _is_of_batch(usual: str, transactional_id: str, batch: Batch) -> bool:
    """Tell whether attempts of the batch may write under an id; earlier ones no longer may."""
    if not transactional_id.startswith(usual):
        return False
    _, _, attempt = transactional_id[len(usual) :].partition("/")
    return not attempt or attempt.split(".")[0] == str(batch.batch_id)


# As a record


def encode_standing(standing: Standing) -> bytes:
    """Return the record's value."""
    decision = standing.decision
    value: dict[str, Any] = {
        "format": _FORMAT,
        "run": {"id": standing.run_id, "number": standing.run_number},
        "generation": standing.generation,
        "replacedRuns": standing.replaced_runs,
        "givenUp": standing.given_up,
        "claims": [[task, *claim] for task, claim in standing.claims.items()],
        "decision": None,
    }
    if decision is not None:
        value["decision"] = {
            "batch": decision.batch_id,
            "twoPhase": decision.is_two_phase,
            "transactions": [
                [each.transactional_id, *each.identity, _V2 if each.is_v2 else _V1]
                for each in decision.transactions
            ],
        }
    return json.dumps(value, separators=(",", ":")).encode()


def decode_standing(value: bytes) -> Standing:
    """Read a record's value."""
    try:
        fields = json.loads(value)
        if fields["format"] != _FORMAT:
            raise StandingUnreadable(f"its format is {fields['format']}, and {_FORMAT} is known")
        decided = fields["decision"]
        return Standing(
            run_id=fields["run"]["id"],
            run_number=fields["run"]["number"],
            generation=fields["generation"],
            decision=None if decided is None else _decode_decision(decided),
            replaced_runs=tuple(fields["replacedRuns"]),
            given_up=fields["givenUp"],
            claims={
                task: ProducerIdentity(ProducerId(producer_id), epoch)
                for task, producer_id, epoch in fields["claims"]
            },
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StandingUnreadable(f"{error!r} in {value[:200]!r}") from None


def _decode_decision(fields: dict[str, Any]) -> Decision:
    return Decision(
        fields["batch"],
        tuple(
            PreparedTransaction(
                TransactionalId(transactional_id),
                ProducerIdentity(ProducerId(producer_id), epoch),
                is_v2=version == _V2,
            )
            for transactional_id, producer_id, epoch, version in fields["transactions"]
        ),
        is_two_phase=fields["twoPhase"],
    )
