from __future__ import annotations

import pytest

from dohle.client.errors import TimedOut
from dohle.client.producer.batch import ProducerIdentity
from dohle.client.transactions.state import ProducerTransactions, TransactionState
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import ProducerId, TopicName, TopicPartition, TransactionalId

P0 = TopicPartition(TopicName("t"), 0)
ME = ProducerIdentity(ProducerId(7), 0)


def ready(*, is_v2: bool = True) -> ProducerTransactions:
    state = ProducerTransactions(TransactionalId("tx"))
    state.check_init()
    state.initialized(ME, is_v2=is_v2)
    return state


def begun(*, is_v2: bool = True) -> ProducerTransactions:
    state = ready(is_v2=is_v2)
    state.begin()
    return state


def error(code: ErrorCode) -> KafkaError:
    return KafkaError(code, "it failed")


def test_nothing_goes_before_the_id_is_initialised() -> None:
    state = ProducerTransactions(TransactionalId("tx"))
    for call in (state.begin, state.check_send, state.commit, state.abort):
        with pytest.raises(KafkaError, match="init_transactions first") as raised:
            call()
        assert raised.value.code is ErrorCode.INVALID_TXN_STATE


def test_it_is_initialised_once() -> None:
    with pytest.raises(KafkaError, match="initialise it again"):
        ready().check_init()


def test_records_are_sent_in_transactions_only() -> None:
    state = ready()
    with pytest.raises(KafkaError, match="begin_transaction first"):
        state.check_send()
    state.begin()
    state.check_send()
    with pytest.raises(KafkaError, match="commit or abort it first"):
        state.begin()


def test_what_is_prepared_can_only_be_ended() -> None:
    for has_kept in (False, True):
        for end in (ProducerTransactions.commit, ProducerTransactions.abort):
            state = begun()
            state.add(P0)
            if has_kept:
                state = ProducerTransactions(TransactionalId("tx"))
                state.initialized(ME, is_v2=True, has_kept=True)
            else:
                state.commit()
                state.prepared()
            assert state.state is TransactionState.PREPARED
            for call in (state.begin, state.check_send, state.add_offsets, state.check_ready):
                with pytest.raises(KafkaError, match="end its transaction first"):
                    call()
            assert state.has_to_end
            assert not state.may_send(P0)
            end(state)
            state.ending()
            state.ended(None)
            state.check_ready()


def test_where_nothing_was_written_nothing_is_prepared() -> None:
    state = begun()
    state.commit()
    state.prepared()
    state.check_ready()


def test_in_the_newer_protocol_brokers_add_partitions_by_themselves() -> None:
    state = begun()
    assert not state.has_to_end
    state.add(P0)
    assert state.may_send(P0)
    assert not state.to_add
    assert state.has_to_end


def test_in_the_older_protocol_a_partition_is_added_before_anything_is_sent_to_it() -> None:
    state = begun(is_v2=False)
    state.add(P0)
    assert not state.may_send(P0)
    assert not state.has_to_end
    state.partitions_added(frozenset(state.to_add))
    assert state.may_send(P0)
    assert state.has_to_end


@pytest.mark.parametrize("is_v2", [True, False])
def test_offsets_alone_make_a_transaction_too(is_v2: bool) -> None:
    state = begun(is_v2=is_v2)
    state.add_offsets()
    assert state.has_to_end is is_v2
    state.offsets_added()
    assert state.has_to_end


def test_the_next_transaction_begins_with_nothing_under_the_new_identity() -> None:
    state = begun()
    state.add(P0)
    state.commit()
    state.ending()
    state.ended(ME._replace(epoch=1))
    assert state.identity == ME._replace(epoch=1)
    state.begin()
    assert not state.may_send(P0)
    assert not state.has_to_end


@pytest.mark.parametrize("is_v2", [True, False])
def test_a_transaction_with_a_failed_batch_can_only_be_aborted(is_v2: bool) -> None:
    state = begun(is_v2=is_v2)
    state.add(P0)
    state.commit()
    state.batch_failed(error(ErrorCode.MESSAGE_TOO_LARGE))
    assert not state.is_open
    for call in (state.check_send, state.commit, state.begin):
        with pytest.raises(KafkaError, match="must be aborted") as raised:
            call()
        assert raised.value.code is ErrorCode.TRANSACTION_ABORTABLE
    state.abort()
    # The newer protocol gives a new epoch with every end.
    assert state.needs_new_epoch is not is_v2
    state.ended(None)
    state.begin()
    assert not state.needs_new_epoch


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_a_fenced_producer_is_of_no_more_use(code: ErrorCode) -> None:
    state = begun()
    assert state.request_failed(error(code)).code is ErrorCode.PRODUCER_FENCED
    for call in (state.check_send, state.commit, state.abort, state.begin, state.check_init):
        with pytest.raises(KafkaError, match="taken over") as raised:
            call()
        assert raised.value.code is ErrorCode.PRODUCER_FENCED


def test_an_old_epoch_in_a_partition_is_not_final_before_the_coordinator_says_so() -> None:
    state = begun()
    state.batch_failed(error(ErrorCode.INVALID_PRODUCER_EPOCH))
    state.abort()
    state.request_failed(error(ErrorCode.INVALID_PRODUCER_EPOCH))
    assert state.state is TransactionState.FATAL_ERROR


def test_a_commit_without_an_answer_can_be_asked_for_again_but_not_be_undone() -> None:
    state = begun()
    state.add(P0)
    state.commit()
    state.ending()
    assert not state.is_open
    state.request_failed(TimedOut("no answer"))
    with pytest.raises(KafkaError, match="commit_transaction again"):
        state.abort()
    state.commit()


def test_a_commit_that_was_refused_can_be_aborted() -> None:
    state = begun()
    state.add(P0)
    state.commit()
    state.ending()
    state.request_failed(error(ErrorCode.TRANSACTION_ABORTABLE))
    state.abort()


def test_a_batch_that_fails_after_the_abort_began_changes_nothing_but_the_epoch() -> None:
    state = begun(is_v2=False)
    state.partitions_added(frozenset({P0}))
    state.abort()
    assert not state.needs_new_epoch
    state.batch_failed(error(ErrorCode.REQUEST_TIMED_OUT))
    assert state.state is TransactionState.ABORTING
    assert state.needs_new_epoch
