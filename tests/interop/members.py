"""Members of consumer groups that read all the time: in a thread, or in a process to be killed.

Members in threads share a ledger of who owns what. A partition must never be given to one while
another still has it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from tests.interop.group_consumers import GroupConsumer, Joining, Place, Seen, joined
from tests.interop.waiting import wait_until

END_DEADLINE_S = 30.0

T = TypeVar("T")


class Ledger:
    """Who owns which partition."""

    def __init__(self) -> None:
        self._owners: dict[Place, str] = {}
        self._lock = threading.Lock()
        #: What should never have happened.
        self.conflicts: list[str] = []

    def give(self, name: str, places: Iterable[Place]) -> None:
        with self._lock:
            for place in places:
                owner = self._owners.setdefault(place, name)
                if owner != name:
                    self.conflicts.append(f"{place} is given to {name} while {owner} has it")
                    self._owners[place] = name

    def take(self, name: str, places: Iterable[Place]) -> None:
        with self._lock:
            for place in places:
                if self._owners.get(place) == name:
                    del self._owners[place]


class Owner(Protocol):
    """Whoever has partitions and reads them."""

    name: str
    seen: list[Seen]
    #: How often it was given partitions, or told that it keeps what it has.
    assignments: int

    @property
    def assignment(self) -> frozenset[Place]:
        """What it has."""

    def check(self) -> None:
        """Fail if it has failed."""


class Member:
    """A consumer in a thread. It commits what it has read whenever it gives partitions back."""

    def __init__(self, joining: Joining, ledger: Ledger | None = None, name: str = "") -> None:
        self.name = name or f"{joining.library}-{id(self)}"
        self.seen: list[Seen] = []
        self.assignments = 0
        self.given: list[set[Place]] = []
        self.taken: list[set[Place]] = []
        self._joining = joining
        self._ledger = ledger or Ledger()
        self._assignment: frozenset[Place] = frozenset()
        self._work: SimpleQueue[Callable[[GroupConsumer], None]] = SimpleQueue()
        self._stopping = threading.Event()
        self._is_leaving = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def assignment(self) -> frozenset[Place]:
        return self._assignment

    def _run(self) -> None:
        try:
            consumer = joined(self._joining, self)
            try:
                while not self._stopping.is_set():
                    self._do_work(consumer)
                    self.seen += consumer.poll()
                if self._joining.commits_when_revoked:
                    consumer.commit()
            finally:
                # Whoever closes gives everything back, though not every library says so; and what
                # it is given while it leaves, it does not take.
                self._is_leaving = True
                self._take(self._assignment)
                consumer.close()
        except BaseException as error:
            error.add_note(f"of {self.name}")
            self._failure = error

    def _do_work(self, consumer: GroupConsumer) -> None:
        try:
            while True:
                self._work.get_nowait()(consumer)
        except Empty:
            pass

    def on_assigned(self, places: set[Place]) -> None:
        if self._is_leaving:
            return
        self._ledger.give(self.name, places)
        self.given.append(places)
        self._assignment |= places
        self.assignments += 1

    def on_revoked(self, places: set[Place]) -> None:
        self.taken.append(places)
        self._take(places)

    def on_lost(self, places: set[Place]) -> None:
        self.taken.append(places)
        self._take(places)

    def _take(self, places: Collection[Place]) -> None:
        self._ledger.take(self.name, places)
        self._assignment -= frozenset(places)

    def ask(self, question: Callable[[GroupConsumer], T]) -> T:
        """Have the thread call this with the consumer, and return the answer."""
        answers: list[T] = []
        self._work.put(lambda consumer: answers.append(question(consumer)))
        wait_until(lambda: bool(answers) or self._failure is not None)
        self.check()
        return answers[0]

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def expect_failure(self) -> BaseException:
        """Wait until it has failed, and return how; it is then nothing to fail about."""
        wait_until(lambda: self._failure is not None)
        assert self._failure is not None
        failure, self._failure = self._failure, None
        return failure

    def close(self) -> None:
        """Leave the group, or just go as static members do."""
        self._stopping.set()
        self._thread.join(END_DEADLINE_S)
        assert not self._thread.is_alive(), f"{self.name} does not end"
        self.check()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self._stopping.set()
            self._thread.join(END_DEADLINE_S)


class MemberProcess:
    """A consumer in a process of its own, that can be killed."""

    def __init__(self, joining: Joining, name: str = "victim") -> None:
        self.name = name
        self.seen: list[Seen] = []
        self.assignments = 0
        self._assignment: frozenset[Place] = frozenset()
        self._is_ending = False
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.interop.group_worker", json.dumps(asdict(joining))],
            stdout=subprocess.PIPE,
        )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    @property
    def assignment(self) -> frozenset[Place]:
        return self._assignment

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said: dict[str, Any] = json.loads(line)
            self.assignments += "given" in said
            self._assignment |= {Place(*each) for each in said.get("given", ())}
            self._assignment -= {Place(*each) for each in said.get("taken", ())}
            for topic, partition, offset, value in said.get("seen", ()):
                self.seen.append(Seen(Place(topic, partition), offset, value.encode()))

    def check(self) -> None:
        assert self._is_ending or self._process.poll() is None, f"{self.name} has ended"

    def kill(self) -> None:
        """End it with -9, so that it cannot say good-bye."""
        self._end(self._process.kill)

    def stop(self) -> None:
        """Ask it to end."""
        self._end(self._process.terminate)

    def _end(self, end: Callable[[], None]) -> None:
        self._is_ending = True
        end()
        self._process.wait(END_DEADLINE_S)
        self._thread.join(END_DEADLINE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._assignment = frozenset()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._is_ending:
            self.kill()


def places_of(topic: str, partitions: int) -> frozenset[Place]:
    """Return the partitions of a topic."""
    return frozenset(Place(topic, number) for number in range(partitions))


def are_settled(owners: Collection[Owner], places: frozenset[Place]) -> bool:
    """Tell whether each has something and each partition has one owner."""
    for owner in owners:
        owner.check()
    found = Counter(place for owner in owners for place in owner.assignment)
    return found == Counter(places) and all(owner.assignment for owner in owners)


def await_settled(
    owners: Collection[Owner], places: frozenset[Place], deadline_s: float = END_DEADLINE_S
) -> None:
    """Wait until all partitions are divided among all of them."""
    wait_until(lambda: are_settled(owners, places), deadline_s)


def values_seen(owners: Iterable[Owner]) -> Counter[bytes]:
    """Return how often each value was read by any of them."""
    return Counter(seen.value for owner in owners for seen in list(owner.seen))


def await_values(
    owners: Collection[Owner], values: Collection[bytes], deadline_s: float = END_DEADLINE_S
) -> None:
    """Wait until each of these was read by somebody."""
    wanted = set(values)

    def are_there() -> bool:
        for owner in owners:
            owner.check()
        return wanted <= set(values_seen(owners))

    wait_until(are_there, deadline_s)
