"""What the simulator promises of time, processes, disks and connections."""

from __future__ import annotations

import asyncio
import errno

import pytest

from dohle.testing.simulation.disk_faults import Operation
from dohle.testing.simulation.machine import Machine, SimulatedHost
from dohle.testing.simulation.network import NetworkSettings
from dohle.testing.simulation.world import SECOND_NS, Stuck, World

WITHIN_S = 100_000


def run(world: World, machine: Machine) -> None:
    """Go on until a machine's program has ended."""
    world.run_until(lambda: not machine.is_running, WITHIN_S)
    assert world.errors == []


def write(host: SimulatedHost, path: str, data: bytes) -> None:
    file = host.files.open(path, write=True, create=True)
    file.write_at(file.size(), data)
    file.close()


def test_waiting_takes_virtual_time_only() -> None:
    async def wait(host: SimulatedHost) -> None:
        before = host.clock.monotonic_ms()
        await asyncio.sleep(10_000)
        assert host.clock.monotonic_ms() - before == 10_000_000

    world = World(1)
    machine = world.machine("a")
    machine.start(wait)
    run(world, machine)
    assert 10_000 <= world.now_s < 10_001


def test_timers_of_one_moment_go_off_in_the_order_they_were_set() -> None:
    found: list[int] = []

    async def set_many(host: SimulatedHost) -> None:
        loop = asyncio.get_running_loop()
        when = loop.time() + 1
        handles = [loop.call_at(when, found.append, number) for number in range(200)]
        for handle in handles[::3]:
            handle.cancel()
        await asyncio.sleep(2)

    world = World(1)
    machine = world.machine("a")
    machine.start(set_many)
    run(world, machine)
    assert found == [number for number in range(200) if number % 3]


def test_what_nobody_can_end_is_told() -> None:
    async def wait(host: SimulatedHost) -> None:
        await asyncio.Event().wait()

    world = World(1)
    machine = world.machine("a")
    machine.start(wait)
    with pytest.raises(Stuck):
        run(world, machine)
    world.close()


def test_a_killed_process_does_nothing_any_more_and_its_writes_stay() -> None:
    async def write_on(host: SimulatedHost) -> None:
        try:
            for _ in range(1_000):
                write(host, "/log", b"x")
                await asyncio.sleep(0.001)
        finally:
            write(host, "/log", b"end")
            await asyncio.sleep(1)
            write(host, "/log", b"end")

    world = World(1)
    machine = world.machine("a")
    machine.start(write_on)
    world.run_for(0.5)
    machine.kill()
    found = machine.files.files()["/log"]
    assert 100 < len(found) < 600
    assert set(found) == set(b"x")
    world.run_for(5)
    assert machine.files.files()["/log"] == found


def test_a_crash_within_a_task_reaches_the_world() -> None:
    ended: list[Machine] = []

    async def write_on(host: SimulatedHost) -> None:
        async def spoil() -> None:
            while True:
                write(host, "/log", b"x")
                await asyncio.sleep(0.001)

        task = asyncio.create_task(spoil())
        await asyncio.wait([task])
        await asyncio.sleep(10)

    world = World(1)
    world.on_exit = ended.append
    machine = world.machine("a")
    machine.files.cut_after_bytes(10)
    machine.start(write_on)
    world.run_for(1)
    assert ended == [machine]
    assert not machine.is_running
    assert machine.files.files()["/log"] == b"x" * 10


def test_power_takes_what_was_not_synced() -> None:
    async def write_two(host: SimulatedHost) -> None:
        for path in ("/synced", "/unsynced"):
            write(host, path, b"data")
        file = host.files.open("/synced", write=True)
        file.sync()
        host.files.sync_dir("/")
        await asyncio.Event().wait()

    found = set()
    for seed in range(20):
        world = World(seed)
        machine = world.machine("a")
        machine.start(write_two)
        world.run_for(1)
        machine.power_off(world.stream("cut"))
        files = machine.files.files()
        assert files["/synced"] == b"data"
        found.add(files.get("/unsynced"))
    assert len(found) > 1


def test_blocking_work_takes_its_time_and_its_errors_arrive() -> None:
    async def work(host: SimulatedHost) -> None:
        assert await host.run_in_thread(lambda: 7) == 7
        host.files.fail(Operation.CREATE, "/", errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            await host.run_in_thread(lambda: host.files.open("/a", write=True, create=True))
        pool = host.thread_pool(1, "one")
        done: list[int] = []
        await asyncio.gather(*(pool.run(lambda n=n: done.append(n)) for n in range(5)))  # type: ignore[misc]
        assert done == [0, 1, 2, 3, 4]
        with pytest.raises(NotImplementedError):
            asyncio.get_running_loop().run_in_executor(None, print)

    world = World(1)
    machine = world.machine("a")
    machine.start(work)
    run(world, machine)
    assert world.now_s > 0.001


# The network


async def accept_one(host: SimulatedHost, port: int = 1) -> asyncio.StreamReader:
    """Listen, and return a reader of the first connection."""
    loop = asyncio.get_running_loop()
    server = host.listen("0.0.0.0", port, 5)
    came: asyncio.Future[None] = loop.create_future()

    def come() -> None:
        if not came.done():
            came.set_result(None)

    loop.add_reader(server.fileno(), come)
    await came
    loop.remove_reader(server.fileno())
    sock, _ = server.accept()
    reader = asyncio.StreamReader()

    def read() -> None:
        try:
            data = sock.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError as error:
            loop.remove_reader(sock.fileno())
            reader.set_exception(error)
            return
        if data:
            reader.feed_data(data)
        else:
            loop.remove_reader(sock.fileno())
            reader.feed_eof()

    loop.add_reader(sock.fileno(), read)
    return reader


@pytest.mark.parametrize("seed", range(5))
def test_bytes_arrive_whole_and_in_order_however_small_the_buffers(seed: int) -> None:
    sent = bytes(range(256)) * 40
    received: list[bytes] = []

    async def receive(host: SimulatedHost) -> None:
        received.append(await (await accept_one(host)).read())

    async def send(host: SimulatedHost) -> None:
        await asyncio.sleep(0.1)
        _, writer = await asyncio.open_connection("a", 1)
        for start in range(0, len(sent), 500):
            writer.write(sent[start : start + 500])
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    settings = NetworkSettings(delay_mean_ns=30_000_000, buffer_bytes=700, short_share=0.5)
    world = World(seed, network=settings)
    a, b = world.machine("a"), world.machine("b")
    a.start(receive)
    b.start(send)
    run(world, a)
    assert received == [sent]


def test_connections_are_refused_where_nobody_listens() -> None:
    async def connect(host: SimulatedHost) -> None:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("a", 1)

    world = World(1)
    world.machine("a")
    machine = world.machine("b")
    machine.start(connect)
    run(world, machine)


async def serve(host: SimulatedHost) -> None:
    await accept_one(host)
    await asyncio.Event().wait()


@pytest.mark.parametrize("seed", range(6))
def test_a_kill_ends_connections_and_a_power_cut_does_not_before_the_machine_is_back(
    seed: int,
) -> None:
    ended_s: list[float] = []

    async def talk(host: SimulatedHost) -> None:
        await asyncio.sleep(0.1)
        reader, writer = await asyncio.open_connection("a", 1)
        try:
            while not reader.at_eof():
                writer.write(b"x")
                await asyncio.sleep(0.1)
                if reader.exception() is not None:
                    break
        finally:
            writer.transport.abort()
        ended_s.append(world.now_s)

    for is_kill in (True, False):
        world = World(seed)
        a, b = world.machine("a"), world.machine("b")
        a.start(serve)
        b.start(talk)
        world.run_for(1)
        assert b.is_running
        if is_kill:
            a.kill()
        else:
            a.power_off(world.stream("cut"))
            world.run_for(50)
            assert b.is_running
            a.start(serve)
        run(world, b)
        world.close()
    assert ended_s[0] < 1.5
    assert 51 < ended_s[1] < 52


def test_a_paused_process_has_no_turns_but_its_machine_takes_connections() -> None:
    turns: list[float] = []

    async def tick(host: SimulatedHost) -> None:
        host.listen("0.0.0.0", 1, 5)
        while True:
            turns.append(world.now_s)
            await asyncio.sleep(0.1)

    async def connect(host: SimulatedHost) -> None:
        await host.connect(asyncio.Protocol, "a", 1)

    world = World(1)
    a, b = world.machine("a"), world.machine("b")
    a.start(tick)
    world.run_for(1)
    a.pause(5 * SECOND_NS)
    b.start(connect)
    world.run_for(1)
    assert not b.is_running
    world.run_for(5)
    assert not [turn for turn in turns if 1.1 < turn < 6]
    assert [turn for turn in turns if turn > 6]
    world.close()


def test_a_cut_link_holds_bytes_back_until_it_is_mended() -> None:
    arrived_s: list[float] = []

    async def receive(host: SimulatedHost) -> None:
        reader = await accept_one(host)
        await reader.read(1)
        arrived_s.append(world.now_s)

    async def send(host: SimulatedHost) -> None:
        await asyncio.sleep(0.1)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(asyncio.Protocol, "a", 1)
        await asyncio.sleep(1)
        transport.write(b"x")
        await asyncio.Event().wait()

    world = World(1)
    a, b = world.machine("a"), world.machine("b")
    a.start(receive)
    b.start(send)
    world.run_for(0.5)
    world.network.cut("b", "a", 10 * SECOND_NS)
    run(world, a)
    assert arrived_s[0] >= 10
    world.close()
