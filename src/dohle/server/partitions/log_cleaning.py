"""The driver of the log cleaner: as many workers as ``log.cleaner.threads`` says.

A worker takes round after round (``storage.cleaning.cleaner``): decisions and swaps in slices on
the loop, everything that reads and writes records in a process of its own (``cleaning_process``),
which a thread waits for. When nothing is dirty enough it waits for ``log.cleaner.backoff.ms``, and
ends the process if nothing was for some time. The first worker also deletes the old segments of
compacted logs.

Settings that are altered count at once, as in Kafka: rounds that are under way are given up, as
they use the memory and the rate of before, and begin again. What they have swapped stays swapped.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from dohle.core.config.definition import ConfigValues
from dohle.core.seams import Clock
from dohle.server.host import NodeHost
from dohle.server.net.slices import Slices
from dohle.server.net.turns import Turns
from dohle.server.partitions.cleaning_process import CleaningProcess
from dohle.storage.cleaning.cleaner import CLEANER_THREADS, LogCleaner
from dohle.storage.cleaning.round_values import CleanerSettings
from dohle.storage.directory.manager import LogManager

logger = logging.getLogger("dohle.server.cleaner")

#: More threads than this are of no use beside one loop.
_THREADS_MAX = 32
#: A worker that has failed tries again no sooner.
_BACKOFF_S_MIN = 0.001
#: What a round depends on; and how long there is none.
_SETTINGS = (
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.threads",
)
#: How long what is left to the thread may keep the interpreter while the loop has something to do;
#: by default 5 ms. A log may have thousands of segments and of producers, of which the process is
#: told; and when there is no process, the thread does everything.
_SWITCH_INTERVAL_S = 0.0005
#: A process that was not needed for so long ends, at the latest after the next backoff; to start
#: another takes 0.1 to 0.2 s.
_IDLE_S = 30.0


class LogCleaning:
    """The workers of a node."""

    def __init__(
        self, logs: LogManager, host: NodeHost, turns: Turns, values: Callable[[], ConfigValues]
    ) -> None:
        self.cleaner = LogCleaner(logs, host.clock)
        self._clock = host.clock
        self._turns = turns
        self._values = values
        self._workers: dict[int, asyncio.Task[None]] = {}
        self._is_started = False
        self._settings: list[object] = []
        # Set for those who wait until something is dirty, when that is of no use any more.
        self._changed = asyncio.Event()
        self._processes = defaultdict[int, CleaningProcess](lambda: CleaningProcess(host))
        self._throttle = _Throttle(host.clock)
        self._threads = host.thread_pool(_THREADS_MAX, CLEANER_THREADS)
        turns.needs.threads[CLEANER_THREADS] = self._threads

    def start(self) -> None:
        """Begin to clean, if that is enabled."""
        if self._values().get_bool("log.cleaner.enable"):
            self._is_started = True
            self._take_settings()
            self._add_workers()
        else:
            logger.warning(
                "log.cleaner.enable is false: compacted topics, those of groups and transactions"
                " among them, only grow"
            )

    def reconfigured(self) -> None:
        """Take in that settings of the broker were altered, maybe some of the cleaner."""
        if not self._is_started or self.cleaner.is_stopping or not self._take_settings():
            return
        logger.info("settings of the log cleaner have changed, so it begins anew")
        self.cleaner.give_up_rounds()
        self._wake()
        self._add_workers()

    def _take_settings(self) -> bool:
        """Tell whether any of the cleaner's settings have changed."""
        values = self._values()
        settings: list[object] = [values[name] for name in _SETTINGS]
        if settings == self._settings:
            return False
        self._settings = settings
        self._throttle.set_rate(values.get_float("log.cleaner.io.max.bytes.per.second"))
        return True

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def stop(self) -> None:
        """Give up what is being cleaned; the files of a round that is not at its end go."""
        self.cleaner.stop()
        self._throttle.release()
        self._wake()
        if self._workers:
            await asyncio.wait(self._workers.values())
        for process in self._processes.values():
            await self._end(process)
        self._threads.close()

    def _add_workers(self) -> None:
        if self.cleaner.is_stopping:
            return
        for number in range(self._count()):
            if number not in self._workers:
                worker = asyncio.get_running_loop().create_task(self._work(number))
                self._workers[number] = worker

    def _count(self) -> int:
        return min(self._values().get_int("log.cleaner.threads"), _THREADS_MAX)

    async def _work(self, number: int) -> None:
        process, used_s = self._processes[number], self._clock.monotonic_s()
        while number < max(self._count(), 1):
            changed = self._changed
            try:
                is_done = not await self._clean_next(process)
                if number == 0:
                    await Slices(self._turns).run(self.cleaner.expire())
            except Exception:
                # Whatever it was: other logs must be cleaned.
                logger.exception("a cleaner failed, and tries again later. Please report this.")
                is_done = True
            if not is_done:
                used_s = self._clock.monotonic_s()
            elif max(self._clock.monotonic_s() - used_s, self._backoff_s()) >= _IDLE_S:
                await self._end(process)
            if is_done and not self.cleaner.is_stopping:
                await self._back_off(changed)
            if self.cleaner.is_stopping:
                return
        await self._end(process)
        del self._workers[number]
        # There may be more of them again by now.
        self._add_workers()

    async def _end(self, process: CleaningProcess) -> None:
        if process.is_running:
            await self._threads.run(process.end)

    async def _clean_next(self, process: CleaningProcess) -> bool:
        values = self._values()
        threads = max(self._count(), 1)
        rate = values.get_float("log.cleaner.io.max.bytes.per.second")
        settings = CleanerSettings(
            dedupe_buffer_bytes=values.get_int("log.cleaner.dedupe.buffer.size") // threads,
            load_factor=values.get_float("log.cleaner.io.buffer.load.factor"),
            io_buffer_bytes=values.get_int("log.cleaner.io.buffer.size") // threads,
            throttle=self._throttle,
            new_work=partial(process.new_work, is_paced=rate < sys.float_info.max),
        )
        with _switching.often():
            return await Slices(self._turns).run(self.cleaner.clean_next(settings))

    def _backoff_s(self) -> float:
        return max(self._values().get_int("log.cleaner.backoff.ms") / 1000, _BACKOFF_S_MIN)

    async def _back_off(self, changed: asyncio.Event) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._backoff_s()):
                await changed.wait()


class _Switching:
    """How often threads take turns; the nodes of a process share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._usual_s = 0.0

    @contextmanager
    def often(self) -> Iterator[None]:
        """Let the loop take its turn soon, while anybody asks for that."""
        with self._lock:
            if not self._users:
                self._usual_s = sys.getswitchinterval()
                sys.setswitchinterval(min(self._usual_s, _SWITCH_INTERVAL_S))
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    sys.setswitchinterval(self._usual_s)


_switching = _Switching()


class _Throttle:
    """Keeps the threads of all rounds together to a rate of bytes read and written."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._is_released = False
        self._due_s = 0.0
        self._bytes_per_second = float("inf")
        # How often the rate was set.
        self._number = 0

    def set_rate(self, bytes_per_second: float) -> None:
        """Let a rate count from now on, for those who wait by the last one, too."""
        with self._changed:
            self._bytes_per_second = bytes_per_second
            self._due_s = 0.0
            self._number += 1
            self._changed.notify_all()

    def release(self) -> None:
        """Let everybody go on at once."""
        with self._changed:
            self._is_released = True
            self._changed.notify_all()

    def __call__(self, size: int) -> None:
        """Return when so many bytes more are within the rate; called in the threads."""
        with self._changed:
            now_s, number = self._clock.monotonic_s(), self._number
            self._due_s = max(self._due_s, now_s) + size / max(self._bytes_per_second, 1.0)
            delay_s = self._due_s - now_s
            # Far less than a millisecond is made up for by the next.
            if delay_s > 0.001:
                self._changed.wait_for(lambda: self._is_released or self._number != number, delay_s)
