"""The runtime when a step fails that should not: whoever asked is told, and the others go on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import perf_counter

import pytest

from dohle.coordination.effects import Effects, PreparedBatch, Ticket
from dohle.core.errors import ErrorCode, KafkaError
from dohle.protocol.messages.heartbeat import HeartbeatResponse
from dohle.records.builder import BatchBuilder
from dohle.server.net.turns import SLICE_S
from dohle.server.node import Node
from tests.coordination.driver import encoded
from tests.server.coordinators.coordinator_counts import (
    PRODUCER,
    TOPIC,
    Counts,
    count_record,
    loaded,
    refused,
    run_on_node,
    runtime_on,
)
from tests.server.faults import until
from tests.server.net.connected import turns
from tests.server.wire import Wire, create_topic, running_node


def test_a_command_that_fails_harms_nobody_else(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        runtime = runtime_on(node)
        answer = runtime.submit("k", lambda m, t: m.fail(), refused)
        assert answer == HeartbeatResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        with pytest.raises(KafkaError, match="UNKNOWN_SERVER_ERROR"):
            await runtime.call("k", lambda m, t: m.fail())
        runtime.post(lambda m: m.fail())
        assert await runtime.call("k", lambda m, t: m.count("a", t)) == 1

    run_on_node(tmp_path, scenario)


def test_a_record_that_cannot_be_encoded_is_refused_and_leaves_no_trace(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        runtime = runtime_on(node)
        machine = await loaded(runtime)
        effects = Effects([count_record("a", 1), count_record("a", 2**63)])
        with pytest.raises(KafkaError, match="INVALID_REQUEST"):
            await runtime.call("k", lambda m, t: effects.reply(t, 1))
        assert await loaded(runtime) is machine
        assert machine.counts == {}
        assert await runtime.call("k", lambda m, t: m.count("a", t)) == 1

    run_on_node(tmp_path, scenario)


def test_a_prepared_batch_that_cannot_be_built_leaves_no_trace(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        runtime = runtime_on(node)
        machine = await loaded(runtime)
        taken_in: list[object] = []
        empty = PreparedBatch(BatchBuilder(), lambda: taken_in.append(None))
        with pytest.raises(KafkaError, match="UNKNOWN_SERVER_ERROR"):
            await runtime.call("k", lambda m, t: Effects(prepared=[empty]).reply(t, 1))
        assert await loaded(runtime) is machine
        assert not taken_in

    run_on_node(tmp_path, scenario)


def test_a_machine_that_fails_to_take_a_prepared_batch_in_is_replaced(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        runtime = runtime_on(node)
        machine = await loaded(runtime)
        builder = BatchBuilder()
        builder.append_all(1, [encoded(count_record("a", 5))])

        def take_in() -> None:
            machine.fail()

        prepared = PreparedBatch(builder, take_in)
        with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
            await runtime.call("k", lambda m, t: Effects(prepared=[prepared]).reply(t, 1))
        again = await loaded(runtime)
        assert again is not machine
        assert again.counts == {"a": 5}

    run_on_node(tmp_path, scenario)


@pytest.mark.parametrize("undo", [False, True])
def test_a_machine_that_fails_to_take_a_record_in_is_replaced(tmp_path: Path, undo: bool) -> None:
    async def scenario(node: Node) -> None:
        runtime = runtime_on(node)
        machine = await loaded(runtime)
        machine.on_replay = machine.fail
        with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
            await runtime.call("k", lambda m, t: m.count("a", t, undo=undo))
        assert machine.counts == {}
        again = await loaded(runtime)
        assert again is not machine
        # Nobody was told that it is in the log, and it is.
        assert again.counts == {"a": 1}
        assert await runtime.call("k", lambda m, t: m.count("a", t)) == 2

    run_on_node(tmp_path, scenario)


def test_a_machine_that_fails_to_take_a_marker_in_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(node: Node) -> None:
        runtime = runtime_on(node)
        log = node.broker.partitions.of_topic(TOPIC)[0].log
        guard = log.producer_state.start_transaction_verification(
            PRODUCER.id, -1, PRODUCER.epoch, supports_epoch_bump=False, now_ms=0
        )
        await runtime.call("k", lambda m, t: m.count_in_transaction("a", t), guard=guard)
        machine = await loaded(runtime)
        monkeypatch.setattr(machine, "replay_end_transaction", machine.fail)
        with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
            runtime.shard(0).append_marker(
                PRODUCER, is_commit=True, coordinator_epoch=0, transaction_version=1
            )
        again = await loaded(runtime)
        assert again is not machine
        assert again.counts == {"a": 1}

    run_on_node(tmp_path, scenario)


def test_what_was_written_before_a_refusal_is_committed(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        runtime = runtime_on(node)
        # The first two are one part, the third another, which is too large by itself.
        records = [count_record(name, 1, size=10_000) for name in "ab"]
        records.append(count_record("c", 1, size=30_000))

        def command(machine: Counts, ticket: Ticket) -> Effects:
            return Effects(records, is_atomic=False).reply(ticket, "done")

        with pytest.raises(KafkaError, match=r"max\.message\.bytes"):
            await runtime.call("k", command)
        assert await runtime.call("k", lambda m, t: m.read("a", t)) == 1
        assert (await loaded(runtime_on(node))).counts == {"a": 1, "b": 1}

    run_on_node(tmp_path, scenario, configs={"max.message.bytes": "25000"})


def test_timers_that_never_end_let_others_have_their_turn(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        runtime = runtime_on(node)
        machine = await loaded(runtime)

        def command(machine: Counts, ticket: Ticket) -> Effects:
            machine.deadline_ms = 0
            return Effects().reply(ticket, None)

        def again() -> None:
            machine.deadline_ms = 0

        machine.on_replay = again
        await runtime.call("k", command)
        await until(lambda: machine.expired > 100)
        machine.on_replay = None

    run_on_node(tmp_path, scenario)


def test_a_timer_that_fails_is_not_tried_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(node: Node) -> None:
        runtime = runtime_on(node)
        machine = await loaded(runtime)
        tries = 0

        def fail() -> None:
            nonlocal tries
            tries += 1
            raise RuntimeError("a mistake")

        monkeypatch.setattr(machine, "expire", fail)
        machine.deadline_ms = 0
        await runtime.call("k", lambda m, t: m.count("a", t))
        await until(lambda: tries > 0)
        await turns(50)
        assert await runtime.call("k", lambda m, t: m.count("a", t)) == 2
        await turns(50)
        assert tries == 1

    run_on_node(tmp_path, scenario)


def test_the_replies_behind_an_action_that_fails_are_sent(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        def fail(action: object) -> None:
            raise RuntimeError("a mistake")

        runtime = runtime_on(node, fail)

        def command(machine: Counts, ticket: Ticket) -> Effects:
            effects = machine.count("a", ticket)
            effects.actions.append("act")
            return effects

        calls = [runtime.call("k", command) for _ in range(2)]
        assert await asyncio.gather(*calls) == [1, 2]

    run_on_node(tmp_path, scenario)


@pytest.mark.parametrize("step", ["replay", "on_loaded"])
def test_of_a_log_that_cannot_be_loaded_nobody_is_the_coordinator(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a mistake")

    async def scenario(node: Node) -> None:
        runtime = runtime_on(node)
        await runtime.call("k", lambda m, t: m.count("a", t))
        runtime.close()
        monkeypatch.setattr(Counts, step, fail)
        again = runtime_on(node)
        await until(lambda: not again.is_loading)
        with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
            await again.call("k", lambda m, t: m.count("a", t))

    run_on_node(tmp_path, scenario)


def test_logs_are_loaded_one_after_the_other(tmp_path: Path) -> None:
    seen: list[int] = []

    def make_slow(index: int) -> Counts:
        machine = Counts()

        def on_replay() -> None:
            seen.append(index)
            end = perf_counter() + SLICE_S
            while perf_counter() < end:
                pass

        machine.on_replay = on_replay
        return machine

    async def run() -> None:
        async with running_node(tmp_path) as node, await Wire.connect(node) as wire:
            await create_topic(wire, TOPIC, partitions=2)
            runtime = runtime_on(node)
            for index in (0, 1, 0, 1, 0, 1):
                await runtime.call(index, lambda m, t: m.count("a", t))
            runtime.close()
            again = runtime_on(node, make_machine=make_slow)
            await loaded(again)
            assert seen == [0, 0, 0, 1, 1, 1]

    asyncio.run(run())


def test_a_large_batch_is_loaded_while_others_are_served(tmp_path: Path) -> None:
    """Between its records the loop turns, and commands are refused until all are in."""

    async def scenario(node: Node) -> None:
        runtime = runtime_on(node)
        records = [count_record("a", number) for number in range(1, 4)]
        await runtime.call("k", lambda m, t: Effects(records).reply(t, None))
        runtime.close()
        turns = 0
        seen: list[int] = []

        def make_slow(_: int) -> Counts:
            machine = Counts()

            def on_replay() -> None:
                seen.append(turns)
                end = perf_counter() + SLICE_S
                while perf_counter() < end:
                    pass

            machine.on_replay = on_replay
            return machine

        again = runtime_on(node, make_machine=make_slow)
        while again.is_loading:
            with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
                await again.call("k", lambda m, t: m.count("a", t))
            turns += 1
            await asyncio.sleep(0)
        assert sorted(set(seen)) == seen
        assert (await loaded(again)).counts == {"a": 3}

    run_on_node(tmp_path, scenario)
