"""The runtime with a machine that only counts: what the log has is what the machine has seen."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from dohle.coordination.effects import Effects, Reply, Ticket
from dohle.core.errors import ErrorCode, KafkaError
from dohle.protocol.messages.heartbeat import HeartbeatResponse
from dohle.server.node import Node
from dohle.server.run import run_loop
from tests.server.coordinators.coordinator_counts import (
    PRODUCER,
    TOPIC,
    Counts,
    Runtime,
    count_record,
    loaded,
    refused,
    run_on_node,
    runtime_on,
)
from tests.server.faults import FaultyFileSystem, until
from tests.server.partitions.second_replica import give_follower
from tests.server.wire import ANSWER_TIMEOUT_S, Wire, create_topic, running_node


def test_what_was_replied_is_there_when_another_machine_loads_the_log(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        runtime = runtime_on(node)
        for number in range(1, 400):
            assert await runtime.call("k", lambda m, t: m.count("a", t)) == number
        machine = await loaded(runtime)
        runtime.close()
        again = await loaded(runtime_on(node))
        assert again.loaded
        assert again.counts == machine.counts == {"a": 399}

    run_on_node(tmp_path, scenario)


def test_records_of_a_transaction_count_when_its_marker_is_written(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        runtime = runtime_on(node)
        log = node.broker.partitions.of_topic(TOPIC)[0].log
        for is_commit, expected in ((False, {}), (True, {"a": 1})):
            guard = log.producer_state.start_transaction_verification(
                7, -1, 0, supports_epoch_bump=False, now_ms=0
            )
            call = runtime.call("k", lambda m, t: m.count_in_transaction("a", t), guard=guard)
            assert await call == 1
            machine = await loaded(runtime)
            assert machine.pending == {"a": 1}
            runtime.shard(0).append_marker(
                PRODUCER, is_commit=is_commit, coordinator_epoch=0, transaction_version=1
            )
            node.broker.write_appends()
            assert machine.counts == expected
        again = await loaded(runtime_on(node))
        assert again.counts == {"a": 1}
        assert not again.pending

    run_on_node(tmp_path, scenario)


def test_who_asks_while_the_log_is_loaded_or_led_elsewhere_is_told_so(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        runtime = runtime_on(node)
        await runtime.call("k", lambda m, t: m.count("a", t))
        runtime.close()

        def code_of(error: KafkaError) -> HeartbeatResponse:
            return HeartbeatResponse(error_code=error.code)

        def ask(runtime: Runtime) -> ErrorCode:
            answer = runtime.submit("k", lambda m, t: m.refuse(t), code_of)
            assert isinstance(answer, HeartbeatResponse)
            return ErrorCode(answer.error_code)

        assert ask(runtime) is ErrorCode.NOT_COORDINATOR
        again = runtime_on(node)
        assert ask(again) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await loaded(again)
        assert ask(again) is ErrorCode.INVALID_GROUP_ID

    run_on_node(tmp_path, scenario)


def test_what_the_log_refuses_changes_nothing_and_is_undone(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        runtime = runtime_on(node)
        machine = await loaded(runtime)
        size = 30_000
        with pytest.raises(KafkaError, match=r"max\.message\.bytes"):
            await runtime.call("k", lambda m, t: m.count("a", t, size=size))
        answer = await runtime.call("k", lambda m, t: m.count("a", t, size=size, undo=True))
        assert answer == "undone: UNKNOWN_SERVER_ERROR"
        assert machine.counts == {}

    run_on_node(tmp_path, scenario, configs={"max.message.bytes": "20000"})


def test_what_no_record_can_hold_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        runtime = runtime_on(node)
        machine = await loaded(runtime)
        with pytest.raises(KafkaError, match="cannot be recorded: OffsetCommitValue"):
            await runtime.call("k", lambda m, t: m.count("a", t, size=40_000))
        assert machine.counts == {}
        assert await runtime.call("k", lambda m, t: m.count("a", t)) == 1

    run_on_node(tmp_path, scenario)


@pytest.mark.parametrize("max_message_bytes", ["1048588", "5000"])
def test_records_that_need_not_be_atomic_are_written_in_parts(
    tmp_path: Path, max_message_bytes: str
) -> None:
    async def scenario(node: Node) -> None:
        runtime = runtime_on(node)
        records = [count_record(f"g{number}", number, size=1_000) for number in range(3_000)]

        def command(machine: Counts, ticket: Ticket) -> Effects:
            return Effects(list(records), is_atomic=False).reply(ticket, "done")

        assert await runtime.call("k", command) == "done"
        again = await loaded(runtime_on(node))
        assert len(again.counts) == 3_000

    run_on_node(tmp_path, scenario, configs={"max.message.bytes": max_message_bytes})


def test_a_timer_fires_and_what_it_decides_is_written(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        runtime = runtime_on(node)
        machine = await loaded(runtime)

        def command(machine: Counts, ticket: Ticket) -> Effects:
            machine.deadline_ms = node.broker.clock.monotonic_ms() + 5
            return Effects().reply(ticket, None)

        await runtime.call("k", command)
        await until(lambda: machine.counts == {"expired": 1})

    run_on_node(tmp_path, scenario)


def test_a_timer_that_is_due_at_once_fires_whatever_comes_before_it(tmp_path: Path) -> None:
    async def run() -> int:
        async with running_node(tmp_path) as node, await Wire.connect(node) as wire:
            await create_topic(wire, TOPIC)
            runtime = runtime_on(node)
            machine = await loaded(runtime)

            def command(machine: Counts, ticket: Ticket) -> Effects:
                machine.deadline_ms = node.broker.clock.monotonic_ms()
                return Effects().reply(ticket, None)

            first = asyncio.ensure_future(runtime.call("k", command))
            await runtime.call("k", command)
            await first
            await until(lambda: machine.counts == {"expired": 1})
        return 0

    # As a broker runs: other loops' handles of what is due at once may know no time.
    assert run_loop(run()) == 0


def test_a_late_answer_is_made_when_the_record_is_written(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        runtime = runtime_on(node)
        log = node.broker.partitions.of_topic(TOPIC)[0].log

        def command(machine: Counts, ticket: Ticket) -> Effects:
            effects = machine.count("a", ticket)
            effects.replies = [Reply(ticket, HeartbeatResponse(throttle_time_ms=7))]
            return effects

        answer = runtime.submit("k", command, refused)
        assert callable(answer)
        assert log.high_watermark < log.log_end_offset
        node.broker.write_appends()
        assert log.high_watermark == log.log_end_offset
        assert answer() == HeartbeatResponse(throttle_time_ms=7)

    run_on_node(tmp_path, scenario)


def test_a_late_answer_is_a_refusal_if_the_record_could_not_be_written(tmp_path: Path) -> None:
    fs = FaultyFileSystem()

    async def scenario(node: Node) -> None:
        runtime = runtime_on(node)
        fs.writes[f"{TOPIC}-0"] = OSError(errno.EIO, "broken")
        answer = runtime.submit("k", lambda m, t: m.count("a", t), refused)
        assert callable(answer)
        node.broker.write_appends()
        assert answer() == HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
        fs.writes.clear()

    run_on_node(tmp_path, scenario, fs=fs)


def test_what_is_refused_or_writes_nothing_is_not_answered_late(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        runtime = runtime_on(node)
        answer = runtime.submit("k", lambda m, t: m.refuse(t), refused)
        assert answer == HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        assert runtime.submit("k", lambda m, t: m.read("a", t), refused) == 0

    run_on_node(tmp_path, scenario)


def test_a_late_answer_that_the_log_refuses_changes_nothing(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        runtime = runtime_on(node)
        answer = runtime.submit("k", lambda m, t: m.count("a", t, size=2_000), refused)
        assert answer == HeartbeatResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        assert (await loaded(runtime)).counts == {}

    run_on_node(tmp_path, scenario, configs={"max.message.bytes": "1000"})


def test_actions_are_carried_out_when_the_records_before_them_are_committed(
    tmp_path: Path,
) -> None:
    async def scenario(node: Node) -> None:
        actions: list[object] = []
        runtime = runtime_on(node, actions.append)
        log = node.broker.partitions.of_topic(TOPIC)[0].log

        def command(machine: Counts, ticket: Ticket) -> Effects:
            effects = machine.count("a", ticket)
            effects.actions.append("act")
            return effects

        call = asyncio.ensure_future(runtime.call("k", command))
        await asyncio.sleep(0)
        assert log.high_watermark < log.log_end_offset
        assert actions == []
        await call
        assert actions == ["act"]

    run_on_node(tmp_path, scenario)


def test_when_the_disk_fails_who_waits_is_told_and_the_machine_is_given_up(tmp_path: Path) -> None:
    fs = FaultyFileSystem()

    async def scenario(node: Node) -> None:
        runtime = runtime_on(node)
        fs.writes[f"{TOPIC}-0"] = OSError(errno.EIO, "broken")
        with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
            await runtime.call("k", lambda m, t: m.count("a", t))
        assert list(runtime.active()) == []
        fs.writes.clear()

    run_on_node(tmp_path, scenario, fs=fs)


def test_who_only_reads_what_is_not_committed_in_time_is_told_so(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        runtime = runtime_on(node, timeout_ms=1)
        give_follower(node, TOPIC)
        with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
            await runtime.call("k", lambda m, t: m.count("a", t))
        # Nothing is left to be written.
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
                await runtime.call("k", lambda m, t: m.read("a", t))

    run_on_node(tmp_path, scenario)


def test_nothing_is_appended_to_a_partition_that_is_gone(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        runtime = runtime_on(node)
        await loaded(runtime)
        partition = node.broker.partitions.of_topic(TOPIC)[0]
        partition.leave()
        with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
            await runtime.call("k", lambda m, t: m.count("a", t))
        assert partition.log.log_end_offset == 0

    run_on_node(tmp_path, scenario)
