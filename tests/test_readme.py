"""The documents tell the truth: their examples run, and what they name is there."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dohle.client import Beginning, Cluster, Consumer, Producer, run
from dohle.core.ids import TopicName, TopicPartition
from dohle.testing import Broker

ROOT = Path(__file__).parent.parent
#: The broker of the documents.
ADDRESS = "127.0.0.1:9092"


def examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def output_of(example: str, folder: Path, timeout_s: float) -> str:
    done = subprocess.run(
        [sys.executable, "-c", example],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readmes_example_runs_as_it_stands(tmp_path: Path) -> None:
    (example,) = [example for example in examples() if ADDRESS not in example]
    assert output_of(example, tmp_path, 60) == "coffee\n"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.xdist_group("spark-processes")
def test_the_readmes_example_on_spark_runs_as_it_stands(tmp_path: Path) -> None:
    (example,) = [example for example in examples() if ADDRESS in example]

    async def write(bootstrap: str) -> None:
        async with Cluster(bootstrap) as cluster, Producer(cluster) as producer:
            await (await producer.send_soon("orders", b"1 coffee", key=b"alice"))

    async def first_written(bootstrap: str) -> tuple[bytes | None, bytes | None]:
        async with Cluster(bootstrap) as cluster, Consumer(cluster) as consumer:
            await consumer.assign({TopicPartition(TopicName("orders-loud"), 0): Beginning()})
            record = (await anext(consumer)).record
            return record.key, record.value

    with Broker() as broker:
        run(write(broker.bootstrap))
        output_of(example.replace(ADDRESS, broker.bootstrap), tmp_path, 240)
        assert run(first_written(broker.bootstrap)) == (b"alice", b"1 COFFEE")


def test_every_file_the_documents_link_to_is_there() -> None:
    for document in [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/**/*.md"),
    ]:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_every_path_the_architecture_names_is_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = re.findall(r"`((?:\w+/)+\w+\.py)`", text)
    assert len(named) > 30
    for name in named:
        assert (ROOT / "src/dohle" / name).exists() or (ROOT / name).exists(), name


def figures(path: str) -> dict[str, int]:
    """Return the numbers that a test module has names for, and how long its lists are."""
    found: dict[str, int] = {}
    for node in ast.parse((ROOT / path).read_text()).body:
        if not isinstance(node, ast.Assign):
            continue
        (target,) = node.targets
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        values = node.value.elts if isinstance(target, ast.Tuple) else [node.value]  # type: ignore[attr-defined]
        for name, value in zip(names, values, strict=True):
            if isinstance(name, ast.Name) and isinstance(value, ast.List):
                found[name.id] = len(value.elts)
            elif isinstance(name, ast.Name) and isinstance(value, ast.Constant):
                found[name.id] = value.value if isinstance(value.value, int) else 0
    return found


def test_the_guarantees_tell_as_many_seeds_mutants_and_rounds_as_there_are() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text()
    seeds = figures("tests/testing/simulation/test_seeds.py")
    quorum = figures("tests/server/quorum/test_simulated_quorum.py")
    controllers = figures("tests/server/quorum/test_simulated_controllers.py")
    raft = figures("tests/raft/simulation/test_mutants.py")
    simulator = figures("tests/testing/simulation/test_mutants.py")
    failovers = figures("tests/server/replicas/test_failovers.py")
    copying = figures("tests/interop/test_cluster_exactly_once.py")
    kills = figures("tests/interop/test_kill.py")
    leaders = figures("tests/interop/test_cluster_kill.py")
    deaths = figures("tests/storage/test_crash_recovery.py")
    expected = [
        f"(`tests/storage/test_crash_recovery.py`) | every {deaths['EVERY']}th byte, all "
        "operations | the other bytes |",
        f"| {seeds['_SEEDS']} seeds | {seeds['_LONG_SEEDS']:,} more, and "
        f"{seeds['_CLEANED_SEEDS']} with compaction |",
        f"| {quorum['FEW_SEEDS']} and {controllers['FEW_SEEDS']} seeds | "
        f"{quorum['SEEDS'] - quorum['FEW_SEEDS']} and "
        f"{controllers['SEEDS'] - controllers['FEW_SEEDS']} more |",
        f"within {raft['SEEDS_MAX']} seeds by the invariant that should find it "
        "(`tests/raft/simulation/test_mutants.py`) | "
        f"{raft['MUTANTS']} mutants |",
        f"(`tests/testing/simulation/test_mutants.py`) | "
        f"{simulator['_MUTANTS'] + simulator['_MUTANTS_BY_ROLE']} mutants |",
        f"| {failovers['_SEEDS']} seeds | {failovers['_LONG_SEEDS']:,} more; ",
        f"{copying['RECORDS']:,} records are copied",
        f"(`tests/interop/test_cluster_exactly_once.py`) | | {copying['NODE_KILLS']} and "
        f"{copying['WORKER_KILLS']} kills |",
        f"(`tests/interop/test_kill.py`) | {kills['ROUNDS']} rounds | "
        f"{kills['LONG_ROUNDS']} more |",
        f"(`tests/interop/test_cluster_kill.py`) | | {leaders['ROUNDS']} rounds |",
    ]
    assert [each for each in expected if each not in text] == []


def runs_of(path: str) -> set[str]:
    """Return which of `make test` and `make test-long` run tests of a module."""
    found = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            decorators = [ast.unparse(each) for each in node.decorator_list]
            if "pytest.mark.long" not in decorators:
                found.add("test")
            # Or some of its parameters are marked.
            if any("pytest.mark.long" in each for each in decorators):
                found.add("test-long")
    return found


def test_the_guarantees_tell_rightly_what_make_test_runs_and_what_is_left_to_test_long() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text()
    table = text[text.index("| level | what runs |") :].partition("\n\n")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines()[2:]]
    named = [
        (name, [run for run, told in zip(("test", "test-long"), more, strict=True) if told.strip()])
        for _, what, *more in rows
        for name in re.findall(r"`(tests/\S+\.py)`", what)
    ]
    assert len(named) > 10
    wrong = {name: told for name, told in named if sorted(runs_of(name)) != told}
    assert wrong == {}
