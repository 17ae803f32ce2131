"""Clusters of processes, for users' own tests."""

from __future__ import annotations

import inspect
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from dohle.cli.local_cluster import LocalNode
from dohle.testing import Cluster, NodeFailed
from tests.interop.waiting import wait_until

#: A node that was killed is let in again as soon as its last session is over.
IMPATIENT = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "300"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=3, config=IMPATIENT) as running:
        yield running


def test_the_example_of_the_documentation_runs(tmp_path: Path) -> None:
    (_, example) = inspect.cleandoc(Cluster.__doc__ or "").split("::\n")
    example, _, _ = example.partition("\nWhatever takes longer")
    script = textwrap.dedent(example).replace("nodes=3", f"nodes=3, config={IMPATIENT}")
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_a_node_is_killed_paused_and_started_again(cluster: Cluster) -> None:
    assert cluster.nodes == cluster.brokers == cluster.controllers == [1, 2, 3]
    first = cluster.leader()
    cluster.pause(first)
    second = cluster.leader()
    assert second != first
    cluster.resume(first)
    cluster.wait_until_ready()
    cluster.kill(second)
    assert cluster.stopped == [second]
    assert cluster.leader() != second
    cluster.restart(second)
    cluster.wait_until_ready()
    assert cluster.serving == [1, 2, 3]


def test_a_node_that_ends_by_itself_is_told_with_its_log(cluster: Cluster) -> None:
    cluster.stop(3)
    config = cluster.config_file(3)
    before = config.read_text()
    config.write_text(before + "num.partitions=none\n")
    try:
        with pytest.raises(NodeFailed, match=r"node 3 ended before it served(.|\n)*num.partitions"):
            cluster.restart(3)
    finally:
        config.write_text(before)
    cluster.restart(3)
    cluster.wait_until_ready()


def test_a_node_that_is_not_there_is_told(cluster: Cluster) -> None:
    for act in (cluster.kill, cluster.pause, cluster.stop, cluster.restart, cluster.log):
        with pytest.raises(ValueError, match="there is no node 9: the nodes are 1, 2, 3"):
            act(9)


def test_nodes_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    script = "from dohle.testing import Cluster; import time\n"
    script += "cluster = Cluster(nodes=1).start(); print(cluster._folder, flush=True)\n"
    script += "time.sleep(300)"
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process, process.stdout:
        folder = Path(process.stdout.readline().strip())
        process.send_signal(signal.SIGKILL)
    wait_until(lambda: "node 1 has stopped" in (folder / "1" / "node.log").read_text())


@pytest.mark.parametrize(
    "arguments", [{"nodes": 3, "brokers": 1}, {"brokers": 3}, {"controllers": 3}, {"nodes": 0}]
)
def test_a_cluster_that_cannot_be_is_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="broker"):
        Cluster(**arguments)  # type: ignore[arg-type]


def test_the_roles_follow_from_the_addresses(tmp_path: Path) -> None:
    both = LocalNode(1, tmp_path, "a:1", "a:2", "a:3")
    assert both.roles == "broker,controller"
