"""Producers that come back, requests that arrive late and twice, a coordinator that crashes.

Whatever happens in whatever order:

- a transaction's outcome is decided once, and only by its own producer, by a newer incarnation or
  by its timeout, if it has one;
- one that a newer incarnation keeps is ended by that one alone, or aborted by one still newer, and
  its markers are its own producer's (KIP-939);
- markers have the decided outcome, and a transaction is complete when all of them are written;
- with TV2 a request acts on the transaction it was sent for, or on nothing; with TV1 on one of the
  same incarnation;
- what a producer was told is what is decided;
- no two incarnations are given the same producer id and epoch, with TV2 no two transactions;
- the log tells everything: a coordinator that has crashed knows what it knew before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import ProducerId, TopicPartition, TransactionalId
from dohle.txn.actions import WriteMarkers
from dohle.txn.state import TransactionState
from dohle.txn.transaction import LAST_EPOCH, Incarnation, ProducerIdAndEpoch, Transaction
from tests.txn.transactions import A0, A1, B0, TIMEOUT_MS, Transactions

IDS = (TransactionalId("fresh"), TransactionalId("nearly exhausted"))
PARTITIONS = (A0, A1, B0)
FATAL = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
)
ALLOWED_AFTER = {
    None: {TransactionState.EMPTY},
    TransactionState.EMPTY: {
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.PREPARE_ABORT,
    },
    TransactionState.ONGOING: {
        TransactionState.ONGOING,
        TransactionState.PREPARE_ABORT,
        TransactionState.PREPARE_COMMIT,
    },
    TransactionState.PREPARE_COMMIT: {TransactionState.COMPLETE_COMMIT},
    TransactionState.PREPARE_ABORT: {TransactionState.COMPLETE_ABORT},
}
ALLOWED_AFTER[TransactionState.COMPLETE_COMMIT] = ALLOWED_AFTER[TransactionState.EMPTY]
ALLOWED_AFTER[TransactionState.COMPLETE_ABORT] = ALLOWED_AFTER[TransactionState.EMPTY]


class Tag(NamedTuple):
    """Which transaction a request was sent for."""

    incarnation: int
    number: int


@dataclass
class Client:
    """A producer process: what it believes."""

    incarnation: int
    transactional_id: TransactionalId
    version: int
    is_two_phase: bool
    producer: ProducerIdAndEpoch | None = None
    number: int = 0
    #: The outcome it has asked for without having an answer: it asks for no other.
    asked: bool | None = None
    is_dead: bool = False

    @property
    def tag(self) -> Tag:
        return Tag(self.incarnation, self.number)


@dataclass
class Owned:
    """A transaction as the log has it."""

    tag: Tag
    version: int
    #: Who has written it.
    writer: ProducerIdAndEpoch
    #: Who may end it, if it is kept.
    ender: ProducerIdAndEpoch | None = None
    #: Whose it was before somebody else has ended it.
    former: Tag | None = None
    partitions: set[TopicPartition] = field(default_factory=set)
    is_commit: bool | None = None
    markers: WriteMarkers | None = None
    marked: set[TopicPartition] = field(default_factory=set)


class Sent(NamedTuple):
    """A request on its way, which may arrive again."""

    client: Client
    tag: Tag
    kind: str
    is_commit: bool
    expected: ProducerIdAndEpoch | None
    send: Callable[[], Any]


class TransactionModel(RuleBasedStateMachine):
    """The rules."""

    @initialize(level=st.sampled_from([1, 2]), left=st.integers(0, 6))
    def start(self, level: int, left: int) -> None:
        self.transactions = Transactions(
            transaction_version=level, transaction_two_phase_commit_enable=True
        )
        self.transactions.put(
            Transaction(
                transactional_id=IDS[1],
                producer_id=ProducerId(7),
                producer_epoch=LAST_EPOCH - left,
                state=TransactionState.EMPTY,
                timeout_ms=TIMEOUT_MS,
                last_update_ms=self.transactions.clock.now_ms(),
            )
        )
        self.clients: list[Client] = []
        self.sent: list[Sent] = []
        self.open: dict[str, Owned] = {}
        self.owned: list[Owned] = []
        self.asked: list[WriteMarkers] = []
        self.given: dict[ProducerIdAndEpoch, Tag] = {}
        self.checked = 0
        self.states: dict[str, TransactionState | None] = {}

    # Producers

    @rule(
        transactional_id=st.sampled_from(IDS),
        version=st.sampled_from([0, 2, 2]),
        how=st.sampled_from(["", "", "keep", "two phase", "keep, two phase"]),
    )
    def begin_an_incarnation(
        self, transactional_id: TransactionalId, version: int, how: str
    ) -> None:
        client = Client(len(self.clients), transactional_id, version, "two phase" in how)
        self.clients.append(client)
        self.initialise(client, is_lost=False, keep="keep" in how)

    def pick(self, data: st.DataObject, *, has_id: bool = True) -> Client | None:
        alive = [
            client
            for client in self.clients
            if not client.is_dead and (client.producer is not None or not has_id)
        ]
        return data.draw(st.sampled_from(alive)) if alive else None

    @rule(data=st.data(), is_lost=st.booleans(), keep=st.booleans())
    def ask_for_an_epoch(self, data: st.DataObject, is_lost: bool, keep: bool) -> None:
        client = self.pick(data, has_id=False)
        if client is not None:
            self.initialise(client, is_lost=is_lost, keep=keep)

    def initialise(self, client: Client, *, is_lost: bool, keep: bool) -> None:
        expected = client.producer
        answer = self.arrive(
            Sent(
                client,
                client.tag,
                "init",
                False,
                expected,
                lambda: self.transactions.incarnate(
                    expected,
                    client.transactional_id,
                    two_phase=client.is_two_phase,
                    keep=keep,
                ),
            )
        )
        if isinstance(answer, Incarnation) and not is_lost:
            client.producer, client.asked = answer.producer, None
            client.number += 1
            self.give(client)
        elif answer in FATAL:
            client.is_dead = True

    def give(self, client: Client) -> None:
        """Note that a client was told who it is."""
        assert client.producer is not None
        assert client.producer.producer_epoch <= LAST_EPOCH
        known = self.given.setdefault(client.producer, client.tag)
        assert known.incarnation == client.incarnation
        if client.version == 2:
            assert known == client.tag

    @rule(data=st.data(), partition=st.sampled_from(PARTITIONS))
    def add_a_partition(self, data: st.DataObject, partition: TopicPartition) -> None:
        client = self.pick(data)
        if client is None or client.asked is not None:
            return
        producer = client.producer
        assert producer is not None
        answer = self.arrive(
            Sent(
                client,
                client.tag,
                "add",
                False,
                producer,
                lambda: self.transactions.add(
                    producer,
                    partition,
                    version=client.version,
                    transactional_id=client.transactional_id,
                ),
            )
        )
        if answer in FATAL:
            client.is_dead = True

    @rule(data=st.data(), wish=st.booleans(), is_lost=st.booleans())
    def end(self, data: st.DataObject, wish: bool, is_lost: bool) -> None:
        client = self.pick(data)
        if client is None:
            return
        producer = client.producer
        assert producer is not None
        is_commit = wish if client.asked is None else client.asked
        client.asked = is_commit
        answer = self.arrive(
            Sent(
                client,
                client.tag,
                "end",
                is_commit,
                producer,
                lambda: self.transactions.end(
                    producer,
                    is_commit=is_commit,
                    version=client.version,
                    transactional_id=client.transactional_id,
                ),
            )
        )
        if answer in FATAL:
            client.is_dead = True
        elif isinstance(answer, ProducerIdAndEpoch) and not is_lost:
            client.asked = None
            client.number += 1
            if client.version == 2:
                client.producer = answer
                self.give(client)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def arrive_late(self, data: st.DataObject) -> None:
        self.arrive(data.draw(st.sampled_from(self.sent)), is_late=True)

    # The coordinator

    @rule(ms=st.sampled_from([0, 100, 10_000, TIMEOUT_MS, 2 * TIMEOUT_MS]))
    def let_time_pass(self, ms: int) -> None:
        self.transactions.driver.advance(ms)
        self.take_in(None)

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def write_a_marker(self, data: st.DataObject) -> None:
        """Also one that was asked for long ago: a report may be late."""
        markers = data.draw(st.sampled_from(self.asked))
        partitions = data.draw(st.sets(st.sampled_from(sorted(markers.partitions)), min_size=1))
        self.report(markers, *partitions)
        self.take_in(None)

    def report(self, markers: WriteMarkers, *partitions: TopicPartition) -> None:
        for owned in self.owned:
            if owned.markers == markers:
                owned.marked.update(partitions)
        self.transactions.report(markers, *partitions)

    @rule()
    def write_all_markers(self) -> None:
        for markers in self.asked:
            self.report(markers, *markers.partitions)
        self.take_in(None)

    @rule()
    def crash(self) -> None:
        before = self.transactions.known()
        self.transactions.driver.restart()
        assert self.transactions.known() == before
        self.take_in(None)
        decided = {each.transactional_id for each in before.values() if each.partitions} & {
            each.transactional_id for each in before.values() if each.state.is_decided
        }
        open_now = {
            markers.transactional_id
            for markers in self.asked
            if before[markers.transactional_id].last_update_ms == markers.decided_ms
        }
        assert decided <= open_now

    @rule()
    def refuse_one_append(self) -> None:
        self.transactions.driver.append_error = KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, "not now"
        )

    def arrive(self, sent: Sent, *, is_late: bool = False) -> Any:
        """Let a request reach the coordinator, and check what it did."""
        if not is_late:
            self.sent.append(sent)
        answer = sent.send()
        self.transactions.driver.append_error = None
        self.take_in(sent)
        if sent.kind == "end" and isinstance(answer, ProducerIdAndEpoch):
            self.check_told(sent)
        return answer

    def check_told(self, sent: Sent) -> None:
        """What a producer is told of a transaction's end is what was decided."""
        if sent.client.version == 2:
            outcomes = [owned.is_commit for owned in self.owned if owned.tag == sent.tag]
            assert outcomes in ([sent.is_commit], [] if not sent.is_commit else None)
            assert all(owned.former != sent.tag for owned in self.owned)
        else:
            # A late duplicate cannot be told from a repetition, but it is its incarnation's.
            incarnation = sent.client.incarnation
            mine = [owned for owned in self.owned if owned.tag.incarnation == incarnation]
            assert mine[-1].is_commit == sent.is_commit

    def take_in(self, sent: Sent | None) -> None:
        """Follow what was written to the log since, and who was the cause."""
        driver = self.transactions.driver
        for stored in driver.log[self.checked :]:
            assert stored.record is not None
            transactional_id = str(getattr(stored.record.key, "transactional_id", ""))
            value: Any = stored.record.value
            after = Transaction.from_record(TransactionalId(transactional_id), value)
            before_state = self.states.get(transactional_id)
            assert after.state in ALLOWED_AFTER[before_state]
            self.states[transactional_id] = after.state
            self.follow(transactional_id, before_state, after, sent)
        self.checked = len(driver.log)
        for markers in self.transactions.markers:
            self.check_markers(markers)
        self.asked += self.transactions.markers
        driver.actions.clear()

    def follow(
        self,
        transactional_id: str,
        before_state: TransactionState | None,
        after: Transaction,
        sent: Sent | None,
    ) -> None:
        if after.state is TransactionState.ONGOING and after.is_kept:
            assert sent is not None
            assert sent.kind == "init"
            owned = self.open[transactional_id]
            assert sent.expected in (None, owned.ender or owned.writer)
            assert after.producer == owned.writer
            assert after.partitions == owned.partitions
            owned.ender = after.client
        elif after.state is TransactionState.ONGOING:
            assert sent is not None
            assert sent.kind == "add"
            if before_state is not TransactionState.ONGOING:
                self.open[transactional_id] = Owned(sent.tag, sent.client.version, after.producer)
                self.owned.append(self.open[transactional_id])
            assert self.open[transactional_id].ender is None
            self.check_own(sent, self.open[transactional_id])
            self.open[transactional_id].partitions = set(after.partitions)
        elif after.state.is_decided and before_state is TransactionState.ONGOING:
            self.follow_decision(self.open[transactional_id], after, sent)
        elif after.state.is_decided:
            assert sent is not None
            assert sent.expected == (after.producer_id, after.producer_epoch - 1)
            self.open.pop(transactional_id, None)
        elif after.state.is_complete and transactional_id in self.open:
            assert self.open[transactional_id].marked == self.open[transactional_id].partitions

    def follow_decision(self, owned: Owned, after: Transaction, sent: Sent | None) -> None:
        assert owned.is_commit is None
        owned.is_commit = after.state.is_commit
        if sent is not None and sent.kind == "end":
            if owned.ender is not None:
                assert sent.expected == owned.ender
                owned.tag, owned.former = sent.tag, owned.tag
            self.check_own(sent, owned)
            assert sent.is_commit == owned.is_commit
        else:
            assert not owned.is_commit
            if sent is None:
                assert not after.is_two_phase
            elif sent.expected is not None:
                assert sent.expected == (owned.ender or owned.writer)

    def check_own(self, sent: Sent, owned: Owned) -> None:
        assert sent.tag.incarnation == owned.tag.incarnation
        if sent.client.version == 2:
            assert sent.tag == owned.tag

    def check_markers(self, markers: WriteMarkers) -> None:
        owned = self.open[markers.transactional_id]
        assert markers.is_commit == owned.is_commit
        assert markers.partitions == owned.partitions
        assert markers.producer_id == owned.writer.producer_id
        assert markers.producer_epoch - owned.writer.producer_epoch in (0, 1)
        assert owned.markers in (None, markers)
        owned.markers = markers

    @invariant()
    def nothing_is_known_that_the_log_does_not_tell(self) -> None:
        last = {
            stored.record.key: stored.record
            for stored in self.transactions.driver.log
            if stored.record is not None
        }
        known = self.transactions.known().values()
        level = self.transactions.settings.transaction_version
        assert [each.to_record(level) for each in known] == [
            last[each.to_record(level).key] for each in known
        ]

    def teardown(self) -> None:
        """In the end every decision is carried out."""
        if not hasattr(self, "transactions"):
            return
        self.transactions.driver.append_error = None
        self.crash()
        self.write_all_markers()
        self.transactions.driver.advance(1_000)
        self.take_in(None)
        assert not any(each.state.is_decided for each in self.transactions.known().values())


TestTransactionModel = TransactionModel.TestCase
TestTransactionModel.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
