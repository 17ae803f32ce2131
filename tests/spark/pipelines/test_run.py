"""A project as ``dohle pipeline init`` makes it, run by ``dohle pipeline run`` on real Spark."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from dohle.cli.commands.pipeline_run import LiveTable
from dohle.cli.main import main
from dohle.client import Cluster, Producer, run
from dohle.spark.pipelines.project import make_project
from dohle.testing import Broker
from tests.spark.topics import read


class Watched:
    """``dohle pipeline run --watch --json`` as a process of its own."""

    def __init__(self, project: Path, bootstrap: str) -> None:
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "dohle", "-b", bootstrap, "--json"),
                *("pipeline", "run", str(project), "--watch", "--master", "local[2]"),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.log = project / ".pipeline" / "spark.log"

    def run_to_end(self) -> list[dict[str, Any]]:
        """Return the events up to the end of a run."""
        found = []
        assert self._process.stdout is not None
        for line in self._process.stdout:
            found.append(json.loads(line))
            if "elapsedMs" in found[-1]:
                return found
        raise AssertionError(f"the runner ended: {found}\n{self.log.read_text()}")

    def interrupt(self) -> int:
        self._process.send_signal(signal.SIGINT)
        self._process.communicate(timeout=60)
        return self._process.returncode

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project("shop", tmp_path)


@pytest.fixture
def watched(project: Path, broker: Broker) -> Iterator[Watched]:
    produce(broker, (project / "sample-orders.jsonl").read_bytes().splitlines())
    running = Watched(project, broker.bootstrap)
    yield running
    running.kill()


def produce(broker: Broker, values: list[bytes]) -> None:
    async def work() -> None:
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster) as producer:
            for value in values:
                await producer.send_soon("shop-orders", value)

    run(work())


def rows_of(events: list[dict[str, Any]]) -> dict[str, tuple[int, int | None]]:
    return {
        event["flow"]: (event["rowsIn"], event["rowsOut"])
        for event in events
        if event["event"] == "progress"
    }


# It starts a Spark of its own and many Python workers, which a busy machine takes minutes for.
@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("spark-processes")
def test_a_new_project_runs_goes_on_with_new_records_and_replays_its_dead_letters(
    broker: Broker, project: Path, watched: Watched, capsys: pytest.CaptureFixture[str]
) -> None:
    first = watched.run_to_end()

    assert first[-1]["state"] == "COMPLETED", watched.log.read_text()
    assert rows_of(first) == {"clean": (6, 4), "dead": (6, 2), "order_table": (6, None)}
    clean = [json.loads(one.value or b"") for one in read(broker, "shop-orders-clean")]
    assert [order["order_id"] for order in clean] == ["o-1", "o-2", "o-3", "o-5"]
    assert clean[2]["amount"] == 4.5
    letters = read(broker, "shop-orders-dead")
    assert [dict(one.headers)["__connect.errors.offset"] for one in letters] == [b"3", b"4"]

    assert main(["-b", broker.bootstrap, "pipeline", "replay", "shop-orders-dead"]) == 0
    assert capsys.readouterr().out == "2 records sent\n"
    second = watched.run_to_end()

    assert second[-1]["state"] == "COMPLETED", watched.log.read_text()
    assert rows_of(second) == {"clean": (2, 0), "dead": (2, 2), "order_table": (2, None)}
    assert len(read(broker, "shop-orders-clean")) == 4
    revenue = pyarrow.parquet.read_table(project / "tables" / "revenue").to_pylist()
    assert {(row["product"], row["orders"], row["revenue"]) for row in revenue} == {
        ("apples", 2, 6.0),
        ("pears", 2, 2.3),
    }
    assert watched.interrupt() == 130


@pytest.mark.xdist_group("spark-processes")
def test_a_project_that_cannot_be_read_fails_with_one_line_and_the_log(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "spark-pipeline.yml").write_text("name: shop\n")

    assert main(["pipeline", "dry-run", str(project)]) == 1

    out, err = capsys.readouterr()
    assert out == ""
    reason, where = err.splitlines()
    assert "storage" in reason
    assert where == f"dohle: error: Spark's output is in {project}/.pipeline/spark.log"
    assert "Traceback" in (project / ".pipeline" / "spark.log").read_text()


def test_a_folder_without_a_project_is_a_wrong_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "run", str(tmp_path)]) == 2
    assert "has no spark-pipeline.yml" in capsys.readouterr().err


def test_a_project_is_made_in_the_current_folder_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main(["pipeline", "init", "shop"]) == 0
    assert "dohle pipeline run" in capsys.readouterr().out
    assert (tmp_path / "shop" / "spark-pipeline.yml").is_file()
    assert main(["pipeline", "init", "shop"]) == 2
    assert "already exists" in capsys.readouterr().err


def test_on_a_terminal_the_flows_are_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    progress = {"batchId": 0, "rowsIn": 6, "rowsOut": None, "lag": 2, "batchMs": 120}

    with LiveTable() as table:
        table.show({"event": "session", "spark": "4.3.0", "java": "/java"})
        table.show({"event": "run", "run": 1, "state": "STARTING"})
        table.show({"event": "flow", "flow": "clean", "state": "RUNNING"})
        table.show({"event": "progress", "flow": "clean", **progress})
        table.show({"event": "run", "run": 1, "state": "COMPLETED", "elapsedMs": 1500})

    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["run", "1", "COMPLETED", "in", "1.5", "s"] in lines
    assert ["clean", "RUNNING", "1", "6", "-", "2", "120"] in lines
