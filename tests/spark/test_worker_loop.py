"""The loop of a worker process: one for all calls, and another after a fork."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from dohle.client import ClientConfig
from dohle.spark import worker_loop
from dohle.testing import Broker

_FORK = """
import asyncio, gc, os, sys
from dohle.client import ClientConfig
from dohle.spark import worker_loop

async def loop():
    return id(asyncio.get_running_loop())

def connected(cluster):
    return bool(worker_loop.run(cluster.refresh(())).brokers)

cluster = worker_loop.cluster(sys.argv[1], ClientConfig())
assert worker_loop.run(loop()) == worker_loop.run(loop())
assert connected(cluster)
if (child := os.fork()) == 0:
    other = worker_loop.cluster(sys.argv[1], ClientConfig())
    is_another = other is not cluster
    del cluster
    gc.collect()
    os._exit(0 if is_another and connected(other) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert worker_loop.cluster(sys.argv[1], ClientConfig()) is cluster
assert connected(cluster)
"""

_LOOK_UP = """
import sys
import pyspark.sql.datasource
before = set(sys.modules)
import pyspark_dohle
print(*sorted(set(sys.modules) - before))
"""


async def _where() -> tuple[asyncio.AbstractEventLoop, str]:
    return asyncio.get_running_loop(), threading.current_thread().name


def test_all_calls_run_on_one_loop_of_a_thread_of_its_own() -> None:
    first, second = worker_loop.run(_where()), worker_loop.submit(_where()).result()

    assert first == second
    assert first[1] != threading.current_thread().name


def test_what_a_call_raises_is_raised_where_it_is_waited_for() -> None:
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        worker_loop.run(fail())


def test_connections_are_shared_by_those_with_the_same_settings(broker: Broker) -> None:
    config = ClientConfig(client_id="one")
    cluster = worker_loop.cluster(broker.bootstrap, config)

    assert worker_loop.cluster(broker.bootstrap, ClientConfig(client_id="one")) is cluster
    assert worker_loop.cluster(broker.bootstrap, ClientConfig(client_id="two")) is not cluster
    assert worker_loop.run(cluster.brokers())


def _output(program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_forked_process_has_a_loop_and_connections_of_its_own(broker: Broker) -> None:
    _output(_FORK, broker.bootstrap)


def test_looking_for_the_format_loads_nothing_but_its_module() -> None:
    assert _output(_LOOK_UP).split() == ["pyspark_dohle"]


_FREEZE = """
import gc
from dohle.spark import worker_loop

worker_loop.task_done("read")
first = gc.get_freeze_count()
kept = [[] for _ in range(10)]
worker_loop.task_done("read")
print(first > 1000, gc.get_freeze_count() == first)
worker_loop.task_done("write")
print(gc.get_freeze_count() > first)
"""


def test_what_the_first_task_imported_is_not_looked_through_after_each_task() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FREEZE], capture_output=True, text=True, check=False
    )

    assert (done.stdout, done.stderr) == ("True True\nTrue\n", "")
