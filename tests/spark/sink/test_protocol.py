"""What follows from a query's standing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.client import PreparedTransaction
from dohle.client.producer.batch import ProducerIdentity
from dohle.core.ids import ProducerId, TransactionalId
from dohle.spark.sink.protocol import (
    EMPTY,
    ONGOING,
    RUNS_KEPT,
    Batch,
    Decide,
    Decision,
    Finish,
    OutOfStep,
    Standing,
    StandingUnreadable,
    Superseded,
    TaskResult,
    TooLate,
    Turn,
    attempt_id,
    check_in_time,
    claim_id,
    commit_turn,
    decode_standing,
    encode_standing,
    gave_up,
    is_first_claim,
    ledger_id,
    may_abort,
    query_prefix,
    strays,
    taken_over,
    task_turn,
    usual_id,
)

_BATCH = Batch("q", "run-1", 5)
_STANDING = Standing("run-1", run_number=3, generation=4)


def _transaction(name: str, epoch: int = 0) -> PreparedTransaction:
    return PreparedTransaction(
        TransactionalId(name), ProducerIdentity(ProducerId(1), epoch), is_v2=True
    )


_TRANSACTIONS = st.builds(
    PreparedTransaction,
    st.text().map(TransactionalId),
    st.builds(ProducerIdentity, st.integers(0, 2**62).map(ProducerId), st.integers(0, 32766)),
    is_v2=st.booleans(),
)
_STANDINGS = st.builds(
    Standing,
    run_id=st.text(),
    run_number=st.integers(1),
    generation=st.integers(0),
    decision=st.none()
    | st.builds(Decision, st.integers(0), st.lists(_TRANSACTIONS).map(tuple), st.booleans()),
    replaced_runs=st.lists(st.text()).map(tuple),
    given_up=st.none() | st.integers(0),
    claims=st.dictionaries(
        st.integers(0),
        st.builds(ProducerIdentity, st.integers(0).map(ProducerId), st.integers(0, 32766)),
    ),
)


@given(_STANDINGS)
def test_a_standing_is_read_as_it_was_written(standing: Standing) -> None:
    assert decode_standing(encode_standing(standing)) == standing


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"format": 2}', b"\xff"])
def test_what_is_no_standing_is_told(value: bytes) -> None:
    with pytest.raises(StandingUnreadable):
        decode_standing(value)


def test_a_new_run_takes_over_and_the_one_before_is_refused() -> None:
    assert task_turn(None, _BATCH) is Turn.TAKE_OVER
    newer = replace(_BATCH, run_id="run-2")
    assert task_turn(_STANDING, newer) is Turn.TAKE_OVER
    after = taken_over(_STANDING, newer)
    assert (after.run_id, after.run_number) == ("run-2", 4)
    assert task_turn(after, newer) is Turn.WRITE
    with pytest.raises(Superseded):
        task_turn(after, _BATCH)
    with pytest.raises(Superseded):
        commit_turn(after, [TaskResult(_BATCH, 0, _transaction("a"))])
    assert not may_abort(after, _BATCH)


def test_only_the_last_runs_are_remembered() -> None:
    standing = taken_over(None, _BATCH)
    for number in range(100):
        standing = taken_over(standing, replace(_BATCH, run_id=f"later-{number}"))
    assert len(standing.replaced_runs) == RUNS_KEPT
    assert standing.replaced_runs[-1] == "later-98"


def test_a_takeover_keeps_the_decision() -> None:
    decided = replace(_STANDING, decision=Decision(5, (_transaction("a"),)))
    after = taken_over(decided, replace(_BATCH, run_id="run-2"))
    assert after.decision == decided.decision
    assert task_turn(after, replace(_BATCH, run_id="run-2")) is Turn.SKIP


def test_a_decided_batch_is_finished_and_what_was_written_again_aborted() -> None:
    decision = Decision(5, (_transaction("a"), _transaction("b")))
    decided = replace(_STANDING, decision=decision)
    results = [
        TaskResult(_BATCH, 0, None, is_skipped=True),
        TaskResult(_BATCH, 1, _transaction("b", epoch=2)),
    ]
    assert commit_turn(decided, results) == Finish(decision, (_transaction("b", epoch=2),))
    assert not may_abort(decided, _BATCH)


def test_a_batch_before_the_decided_one_is_refused() -> None:
    decided = replace(_STANDING, decision=Decision(6, ()))
    with pytest.raises(OutOfStep, match="batch 5 of query q came after batch 6"):
        task_turn(decided, _BATCH)
    with pytest.raises(OutOfStep):
        commit_turn(decided, [TaskResult(_BATCH, 0, _transaction("a"))])
    assert not may_abort(decided, _BATCH)


def test_a_decision_names_all_transactions_by_task() -> None:
    results = [
        TaskResult(_BATCH, 2, _transaction("c"), is_two_phase=True),
        TaskResult(_BATCH, 0, _transaction("a"), is_two_phase=True),
        TaskResult(_BATCH, 1, None),
    ]
    turn = commit_turn(_STANDING, results)
    assert isinstance(turn, Decide)
    assert turn.decision == Decision(5, (_transaction("a"), _transaction("c")), is_two_phase=True)
    assert turn.standing.decision == turn.decision


def test_only_one_attempt_has_the_claim_to_the_usual_id() -> None:
    first, second, third = (ProducerIdentity(ProducerId(9), epoch) for epoch in range(3))
    assert is_first_claim(_STANDING, 0, first)
    assert not is_first_claim(_STANDING, 0, second)
    known = replace(_STANDING, claims={0: first})
    assert is_first_claim(known, 0, second)
    assert not is_first_claim(known, 0, third)
    assert not is_first_claim(known, 0, first)
    assert not is_first_claim(known, 0, ProducerIdentity(ProducerId(10), 0))


def test_after_another_attempt_than_the_one_with_the_claim_has_won_ids_are_new() -> None:
    claim = ProducerIdentity(ProducerId(9), 0)
    usual = TaskResult(_BATCH, 0, _transaction("a"), claim=claim)
    turn = commit_turn(_STANDING, [usual, TaskResult(_BATCH, 1, None)])
    assert isinstance(turn, Decide)
    assert (turn.standing.generation, turn.standing.claims) == (4, {0: claim})
    turn = commit_turn(_STANDING, [usual, _won_otherwise()])
    assert isinstance(turn, Decide)
    assert (turn.standing.generation, turn.standing.claims) == (6, {})


def _won_otherwise() -> TaskResult:
    other = attempt_id("p", _STANDING, _BATCH, task=1, task_attempt_id=77)
    return TaskResult(_BATCH, 1, _transaction(other))


def test_the_usual_id_is_that_of_the_batch_before_the_last() -> None:
    ids = [usual_id("p", _STANDING, Batch("q", "run-1", each), 0) for each in range(4)]
    assert ids[0] == ids[2] != ids[1] == ids[3]
    assert claim_id("p", _STANDING, _BATCH, 0) not in ids


def test_the_usual_ids_are_never_those_of_the_decision() -> None:
    standing = _STANDING
    for number in (4, 6, 7, 9, 11, 12):
        batch = replace(_BATCH, batch_id=number)
        name = usual_id("p", standing, batch, 0)
        assert standing.decision is None or name not in standing.decision.ids
        standing = replace(standing, decision=Decision(number, (_transaction(name),)))


def test_results_of_two_batches_or_twice_of_an_id_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="speak of 2"):
        commit_turn(
            _STANDING,
            [TaskResult(_BATCH, 0, None), TaskResult(replace(_BATCH, batch_id=6), 1, None)],
        )
    with pytest.raises(ValueError, match="same transactional id"):
        commit_turn(
            _STANDING,
            [TaskResult(_BATCH, each, _transaction("a")) for each in range(2)],
        )


def test_strays_are_of_this_run_or_before_and_not_decided() -> None:
    decided = replace(_STANDING, decision=Decision(4, (_transaction("p/q/2/0/0/0"),)))
    states = {
        "p/q/2/0/0/0": ONGOING,  # decided
        "p/q/2/0/0/1": ONGOING,
        "p/q/2/0/0/2": EMPTY,
        "p/q/3/4/1/0": ONGOING,  # to be kept
        "p/q/3/4/1/1/5.12": ONGOING,
        "p/q/3/4/1/1/5.13": EMPTY,
        "p/q/3/4/1/1/3.9": EMPTY,  # of a batch that is through
        "p/q/3/4/1/2": EMPTY,
        "p/q/3/2/1/2": EMPTY,  # of a generation before
        "p/q/1/0/0/2": EMPTY,  # of a run that the one which decided has shut out
        "p/q/3/4/0/2": EMPTY,  # for another batch
        "p/q/3/4/claim/1": EMPTY,
        "p/q/4/0/0/0": ONGOING,  # of a newer run
        "p/q": ONGOING,
        "p/qq/1/0/0/0": ONGOING,
        "p/q/x/0/0": ONGOING,
    }
    of_this_run = ["p/q/3/4/1/1/5.12", "p/q/3/4/1/1/5.13", "p/q/3/4/1/2"]
    found = strays("p", _BATCH, states, decided, {"p/q/3/4/1/0"})
    assert found == ["p/q/2/0/0/1", "p/q/2/0/0/2", *of_this_run]
    # Once the run has committed, nobody of a run before can begin any more.
    later = replace(_STANDING, decision=Decision(4, (_transaction("p/q/3/4/0/0"),)))
    del states["p/q/2/0/0/0"]
    found = strays("p", _BATCH, states, later, {"p/q/3/4/1/0"})
    assert found == ["p/q/2/0/0/1", *of_this_run]


def test_an_attempt_that_comes_late_does_not_begin() -> None:
    check_in_time(_STANDING, _BATCH)
    for over in (
        replace(_STANDING, decision=Decision(5, ())),
        gave_up(_STANDING, _BATCH),
    ):
        with pytest.raises(TooLate, match="batch 5 of query q is over"):
            check_in_time(over, _BATCH)
    with pytest.raises(TooLate):
        commit_turn(gave_up(_STANDING, _BATCH), [TaskResult(_BATCH, 0, None)])
    assert taken_over(gave_up(_STANDING, _BATCH), replace(_BATCH, run_id="new")).given_up is None


def test_the_id_of_the_ledger_is_none_of_a_task() -> None:
    assert not ledger_id("p", "q").startswith(query_prefix("p", "q"))
    assert usual_id("p", _STANDING, _BATCH, 2) == "p/q/3/4/1/2"
