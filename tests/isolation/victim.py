"""A client that others must not harm: it says how long each of its requests took, at worst.

``python -m tests.isolation.victim BOOTSTRAP TOPIC PID`` says "ready" after its first answers, goes
on until its standard input ends, and then prints what it has seen, as JSON: its longest waits, and
the most processor time that the broker (process PID) has used meanwhile. The latter does not depend
on what else the machine has to do. It also tells for how much of the longest waits either of them
had to wait for a processor: that is the machine's doing.
"""

from __future__ import annotations

import json
import select
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import clock_gettime, perf_counter
from typing import TypeVar

from dohle.core.errors import ErrorCode
from dohle.core.ids import GroupId
from dohle.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from dohle.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from dohle.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from dohle.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from dohle.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.interop.wire import Wire, batch_of

#: The shortest that a broker allows by default.
SESSION_MS = 6_000
HEARTBEAT_S = 1.0
#: So many requests a second and kind: what goes on between them is felt by the next.
PAUSE_S = 0.005
#: The first requests find everything cold.
WARM_UP_REQUESTS = 50
GROUP = GroupId("victims")
ASK = ApiVersionsRequest(client_software_name="victim", client_software_version="1")
#: Longer than anything that the test is to find: it should tell how long, not break off.
PATIENCE_S = 100.0


T = TypeVar("T")


class Member:
    """A member of a classic group, alone in it."""

    def __init__(self, bootstrap: str) -> None:
        self._wire = Wire(bootstrap)
        self._wire.socket.settimeout(PATIENCE_S)
        self._find()
        joined = self._join("")
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            joined = self._join(joined.member_id)
        assert joined.error_code == 0, joined
        self._id, self._generation = joined.member_id, joined.generation_id
        synced = self._wire.ask(
            SyncGroupRequest(
                group_id=GROUP,
                generation_id=self._generation,
                member_id=self._id,
                assignments=(SyncGroupRequestAssignment(member_id=self._id, assignment=b"all"),),
            ),
            SyncGroupResponse,
            3,
        )
        assert synced.error_code == 0, synced

    def _find(self) -> None:
        """Have the group's partitions created, and wait until they are led."""
        for _ in range(1000):
            found = self._wire.ask(
                FindCoordinatorRequest(key=GROUP, key_type=0), FindCoordinatorResponse, 2
            )
            if found.error_code == 0:
                return
        raise AssertionError(f"no coordinator: {found}")

    def _join(self, member_id: str) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=member_id,
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
        )
        for _ in range(1000):
            answer = self._wire.ask(request, JoinGroupResponse, 5)
            if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                break
        return answer

    def heartbeat(self) -> int:
        """Say that it lives; return the error code."""
        return self._wire.ask(
            HeartbeatRequest(group_id=GROUP, generation_id=self._generation, member_id=self._id),
            HeartbeatResponse,
            3,
        ).error_code


class Stopwatch:
    """The longest that a request has taken, in time and in the broker's processor time."""

    def __init__(self, pid: int) -> None:
        # As clock_getcpuclockid(3) makes it: the processor time of all threads of a process.
        self._clock = (~pid << 3) | 2
        self._delays = [Path(f"/proc/{each}/schedstat") for each in (pid, "self")]
        self.wait_s = 0.0
        self.cpu_s = 0.0
        #: For how much of the longest wait the broker's loop or the victim had no processor.
        self.delayed_s = 0.0

    def measure(self, ask: Callable[[], T]) -> T:
        delayed = self._delayed_s()
        began, cpu = perf_counter(), clock_gettime(self._clock)
        answer = ask()
        wait_s = perf_counter() - began
        self.cpu_s = max(self.cpu_s, clock_gettime(self._clock) - cpu)
        if wait_s > self.wait_s:
            self.wait_s, self.delayed_s = wait_s, self._delayed_s() - delayed
        return answer

    def _delayed_s(self) -> float:
        """Return for how long both were ready to run, and others ran."""
        with suppress(OSError):
            return sum(int(path.read_text().split()[1]) for path in self._delays) / 1e9
        return 0.0


def main() -> None:
    bootstrap, topic, pid = sys.argv[1:]
    member = Member(bootstrap)
    record = batch_of(b"of the victim")
    watches = {name: Stopwatch(int(pid)) for name in ("produce", "api_versions")}
    count = 0
    refused: list[str] = []
    with Wire(bootstrap) as writer, Wire(bootstrap) as asker:
        writer.socket.settimeout(PATIENCE_S)
        asker.socket.settimeout(PATIENCE_S)
        heartbeat_at = 0.0
        while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
            written = watches["produce"].measure(lambda: writer.produce(topic, record))
            watches["api_versions"].measure(lambda: asker.ask(ASK, ApiVersionsResponse, 3))
            if written.error_code:
                refused.append(f"produce: {ErrorCode(written.error_code).name}")
            if perf_counter() >= heartbeat_at:
                if code := member.heartbeat():
                    refused.append(f"heartbeat: {ErrorCode(code).name}")
                heartbeat_at = perf_counter() + HEARTBEAT_S
            count += 1
            if count == WARM_UP_REQUESTS:
                watches = {name: Stopwatch(int(pid)) for name in watches}
                sys.stdout.write("ready\n")
                sys.stdout.flush()
    seen = {
        "wait_s": {name: watch.wait_s for name, watch in watches.items()},
        "cpu_s": {name: watch.cpu_s for name, watch in watches.items()},
        "delayed_s": {name: watch.delayed_s for name, watch in watches.items()},
        "count": count - WARM_UP_REQUESTS,
        "refused": refused,
    }
    json.dump(seen, sys.stdout)


if __name__ == "__main__":
    main()
