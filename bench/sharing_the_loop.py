"""How long others wait while long work is done: in one piece, in slices, in a thread, in a process.

A server answers each byte that it gets by one byte, as soon as its loop gets to it. Meanwhile it
decodes a request of 100,000 entries, again and again. A client in a process of its own asks
every millisecond, and tells how long it waited. Run by ``python -m bench.sharing_the_loop``; ADR 15
has the figures.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from time import perf_counter

from dohle.core.ids import BrokerId, TopicName
from dohle.core.steps import PlainSteps, finish, let_go
from dohle.protocol.entries import entries_of
from dohle.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from dohle.server.net.request_entries import ENTRIES_MAX, Entries

VERSION = 7
ENTRIES = 100_000
ROUNDS = 10
SLICE_S = 0.003
PAUSE_S = 0.001
REST_S = 0.010

Way = Callable[[bytes], Awaitable[object]]


def frame() -> bytes:
    """Return a request for the offsets of very many partitions."""
    partitions = tuple(
        ListOffsetsPartition(partition_index=number, timestamp=-1) for number in range(ENTRIES)
    )
    topic = ListOffsetsTopic(name=TopicName("t"), partitions=partitions)
    return ListOffsetsRequest(replica_id=BrokerId(-1), topics=(topic,)).encode(VERSION)


def work(body: bytes) -> PlainSteps[int]:
    """Decode it, and let go of it; say how many entries it has."""
    decode = partial(ListOffsetsRequest.decode_in_steps, VERSION, memoryview(body), 0)
    request = yield from Entries(decode).decode(ENTRIES_MAX)
    assert request is not None
    entries = yield from entries_of(request)
    del request
    count = len(entries)
    yield from let_go(entries)
    return count


def decode(body: bytes) -> int:
    """Do the work in one go."""
    return finish(work(body))


def decode_whole(body: bytes) -> ListOffsetsRequest:
    """Decode it in one go; return all of it."""
    return finish(ListOffsetsRequest.decode_in_steps(VERSION, memoryview(body)))[0]


async def in_one_piece(body: bytes) -> None:
    """Do the work on the loop."""
    decode(body)


async def in_slices(body: bytes) -> None:
    """Do the work on the loop, and let others have their turn every few milliseconds."""
    end = perf_counter() + SLICE_S
    for _ in work(body):
        if perf_counter() >= end:
            await asyncio.sleep(0)
            end = perf_counter() + SLICE_S


def in_pool(
    pool: ThreadPoolExecutor | ProcessPoolExecutor, function: Callable[[bytes], object]
) -> Way:
    """Do the work beside the loop."""

    async def run(body: bytes) -> None:
        await asyncio.get_running_loop().run_in_executor(pool, function, body)

    return run


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each byte by a byte."""
    while byte := await reader.read(1):
        writer.write(byte)
    writer.close()


async def measure(name: str, way: Way) -> None:
    """Do the work some times while somebody asks; print how long they waited."""
    body = frame()
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    victim = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.sharing_the_loop", str(port)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert victim.stdout is not None
    assert victim.stdin is not None
    await victim.stdout.readline()
    began = perf_counter()
    for _ in range(ROUNDS):
        await way(body)
        await asyncio.sleep(REST_S)
    took = (perf_counter() - began) / ROUNDS - REST_S
    victim.stdin.close()
    told = (await victim.stdout.readline()).decode().strip()
    await victim.wait()
    server.close()
    print(f"{name:34} {took * 1000:8.0f} ms  {told}", flush=True)


async def main() -> None:
    """Measure all ways."""
    # Full collections are a matter of their own.
    gc.disable()
    print("way, time for 100,000 entries, and what others waited: median, 99 %, longest")
    await measure("nothing", lambda _: asyncio.sleep(0.2))
    await measure("in one piece", in_one_piece)
    await measure(f"slices of {SLICE_S * 1000:.0f} ms", in_slices)
    with ThreadPoolExecutor(1) as threads:
        await measure("a thread", in_pool(threads, decode))
    with ProcessPoolExecutor(1) as processes:
        await asyncio.get_running_loop().run_in_executor(processes, decode, frame())
        await measure("a process that returns a number", in_pool(processes, decode))
        await measure("a process that returns the request", in_pool(processes, decode_whole))


async def be_victim(port: int) -> None:
    """Ask until standard input ends, and print how long that took."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def ask() -> float:
        began = perf_counter()
        writer.write(b"?")
        await reader.readexactly(1)
        return perf_counter() - began

    for _ in range(20):
        # The first requests find everything cold.
        await ask()
    print("ready", flush=True)
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    waits: list[float] = []
    while not ended.done():
        waits.append(await ask())
        await asyncio.sleep(PAUSE_S)
    waits.sort()
    shown = (waits[len(waits) // 2], waits[len(waits) * 99 // 100], waits[-1])
    print("  ".join(f"{wait * 1000:7.2f} ms" for wait in shown), flush=True)


if __name__ == "__main__":
    asyncio.run(be_victim(int(sys.argv[1])) if len(sys.argv) > 1 else main())
