"""Three nodes under load, to be killed and to be watched while they heal.

Press 1, 2 or 3 to kill a node with -9, and again to start it; a, s or d to let one stand still
(SIGSTOP), and again to let it go on; q to end. Everything is in a temporary folder.
"""

import argparse
import asyncio
import re
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic

from rich.console import Console
from rich.live import Live
from work import PARTITIONS, Work
from world import World

from dohle.testing import Cluster

#: A node that is killed is missed after so long; Kafka's default of 9 s is long to watch.
CONFIG = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
}
KILLS = {"1": 1, "2": 2, "3": 3}
PAUSES = {"a": 1, "s": 2, "d": 3}
HELP = "1 2 3: kill or start a node   a s d: pause or resume one   q: end"
PERIOD_S = 0.25
HEALED_S_MAX = 60


def say(text: str) -> None:
    """Print a line."""
    Console(soft_wrap=True, highlight=False, markup=False).print(text)


class Demo:
    """A cluster, the work on it, and what somebody does to it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = World(cluster)
        self.work = Work(cluster.bootstrap, self.world)
        self.is_over = asyncio.Event()
        self._busy: set[asyncio.Task[None]] = set()

    def press(self, key: str) -> None:
        """Do what a key asks for, without making the view wait."""
        if key == "q":
            self.is_over.set()
        elif key in KILLS:
            self._begin(self.kill_or_start(KILLS[key]))
        elif key in PAUSES:
            self._begin(self.pause_or_resume(PAUSES[key]))

    def _begin(self, work: object) -> None:
        task = asyncio.ensure_future(work)
        self._busy.add(task)
        task.add_done_callback(self._busy.discard)

    async def kill_or_start(self, node: int) -> None:
        """Kill a node that runs, start one that does not."""
        if node in self.world.starting:
            return
        if node not in self.cluster.stopped:
            self.cluster.kill(node)
            self.world.note(f"node {node} was killed with -9")
            return
        self.world.starting.add(node)
        try:
            await asyncio.to_thread(self.cluster.restart, node)
            self.world.note(f"node {node} is back")
        finally:
            self.world.starting.discard(node)

    async def pause_or_resume(self, node: int) -> None:
        """Let a node stand still, or go on."""
        if node in self.cluster.stopped or node in self.world.starting:
            return
        if node in self.cluster.serving:
            self.cluster.pause(node)
            self.world.note(f"node {node} stands still")
        else:
            self.cluster.resume(node)
            self.world.note(f"node {node} goes on")

    async def finish(self) -> None:
        """End the work, and what is being started."""
        await self.work.stop()
        for task in self._busy:
            task.cancel()
        await asyncio.gather(*self._busy, return_exceptions=True)


async def watch(demo: Demo, seconds: float | None) -> None:
    """Show it on a terminal until somebody has seen enough."""
    loop = asyncio.get_running_loop()
    with keys() as descriptor, Live(screen=True, auto_refresh=False) as live:
        loop.add_reader(descriptor, lambda: demo.press(sys.stdin.read(1)))
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, demo.is_over.set)
        until_s = None if seconds is None else monotonic() + seconds
        while not demo.is_over.is_set() and (until_s is None or monotonic() < until_s):
            live.update(demo.world.view(HELP), refresh=True)
            with suppress(TimeoutError):
                await asyncio.wait_for(demo.is_over.wait(), PERIOD_S)
        loop.remove_reader(descriptor)


@contextmanager
def keys() -> Iterator[int]:
    """Let each key arrive by itself, without being shown."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


async def tell(demo: Demo, seconds: float) -> None:
    """Print a line each second, for those without a terminal."""
    until_s = monotonic() + seconds
    while (left_s := until_s - monotonic()) > 0:
        await asyncio.sleep(min(left_s, 1.0))
        say(demo.world.line())


async def record(demo: Demo, path: Path) -> None:
    """Kill a leader, start it again, and keep what could be seen as a picture."""
    console = Console(record=True, width=92)

    async def until(condition: object) -> None:
        deadline_s = monotonic() + HEALED_S_MAX
        while not condition() and monotonic() < deadline_s:
            await asyncio.sleep(PERIOD_S)

    def keep() -> None:
        console.print(demo.world.view(""))

    world = demo.world
    await until(lambda: world.is_well and world.written > 2_000)
    await asyncio.sleep(5)
    keep()
    victim = world.partitions[0].leader_id
    await demo.kill_or_start(victim)
    await until(lambda: all(victim not in each.isr for each in world.partitions))
    await asyncio.sleep(3)
    keep()
    await demo.kill_or_start(victim)
    await until(lambda: world.is_well)
    await asyncio.sleep(3)
    keep()
    picture = console.export_svg(title="make cluster-demo: a node is killed, and comes back")
    # Fonts of this machine will do: a picture should fetch nothing.
    path.write_text(re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL))


async def run(cluster: Cluster, args: argparse.Namespace) -> None:
    """Work and watch."""
    demo = Demo(cluster)
    await demo.work.start()
    try:
        if args.record is not None:
            await record(demo, args.record)
        elif args.plain:
            await tell(demo, args.seconds or 60.0)
        else:
            await watch(demo, args.seconds)
    finally:
        await demo.finish()
    say(
        f"{demo.world.written} records acknowledged and {demo.world.read} read, in "
        f"{PARTITIONS} partitions; {demo.world.failed} not acknowledged"
    )


def main() -> int:
    """Run the demo."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, help="end after so many seconds")
    parser.add_argument(
        "--plain", action="store_true", help="print a line each second: needs no terminal"
    )
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE.svg",
        help="kill a node, start it again, and keep how that looks",
    )
    args = parser.parse_args()
    if not (args.plain or args.record or (sys.stdin.isatty() and sys.stdout.isatty())):
        parser.error("this is no terminal: use --plain")
    say("three nodes are starting")
    with Cluster(nodes=3, config=CONFIG) as cluster:
        asyncio.run(run(cluster, args))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
