"""``dohle cluster reassign`` where there is one broker: what there is to see, and directories."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.running import Command, Started, dohle
from tests.cli.terminals import run_on_terminal


def plan_file(path: Path, topic: str, *directories: str) -> str:
    entry = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": list(directories)}
    path.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    return str(path)


def test_a_plan_that_is_carried_out_already_changes_nothing(
    command: Command, tmp_path: Path
) -> None:
    command.out("topic", "create", "stays", "--partitions", "1")
    plan = plan_file(tmp_path / "plan.json", "stays", "any")
    (row,) = command.json("cluster", "reassign", "execute", plan, "--wait")
    assert (row["state"], row["replicas"], row["planned"]) == ("completed", [1], [1])
    assert command.json("cluster", "reassign", "list") == []
    assert command.json("cluster", "reassign", "cancel", "--all") == []
    (planned,) = command.json("cluster", "reassign", "plan", "stays")
    assert planned == {"version": 1, "partitions": []}
    shown = command.out("cluster", "reassign", "verify", plan)
    assert shown.splitlines()[0].split() == [
        *("topic", "partition", "replicas", "planned", "state", "percent")
    ]


def test_what_cannot_be_planned_or_executed_is_refused(command: Command, tmp_path: Path) -> None:
    command.out("topic", "create", "refused", "--partitions", "1")
    reassign = ("cluster", "reassign")
    assert "there is no topic nowhere" in command.error(*reassign, "plan", "nowhere")
    many = ("plan", "refused", "--replication-factor", "2")
    assert "refused-0 is to have 2 replicas, and there are too few brokers" in command.error(
        *reassign, *many
    )
    elsewhere = ("plan", "refused", "--to", "7")
    assert "broker 7 is not in the cluster" in command.error(*reassign, *elsewhere)
    missing = plan_file(tmp_path / "plan.json", "nowhere", "any")
    assert "there is no topic nowhere" in command.error(*reassign, "execute", missing)
    assert "name the plan" in command.error(*reassign, "cancel", code=2)


def test_a_replica_is_moved_to_the_directory_that_a_plan_names(tmp_path: Path) -> None:
    directories = [tmp_path / "a", tmp_path / "b"]
    data = [argument for each in directories for argument in ("--data", str(each))]
    with Started(*data, cwd=tmp_path) as started:
        there = ("-b", started.bootstrap)
        assert dohle(*there, "topic", "create", "moved", "--partitions", "1").returncode == 0
        (source,) = [each for each in directories if (each / "moved-0").exists()]
        (target,) = set(directories) - {source}
        plan = plan_file(tmp_path / "plan.json", "moved", str(target))
        reassign = (*there, "cluster", "reassign")
        before = dohle(*reassign, "verify", plan)
        assert before.returncode == 1
        assert b"other directory" in before.stdout
        shown = run_on_terminal(120, *reassign, "execute", plan, "--wait")
        assert any("completed" in line for line in shown), shown
        assert any("1/1 partitions" in line for line in shown), "a bar tells how far it is"
        assert (target / "moved-0").exists()
        assert dohle(*reassign, "verify", plan).returncode == 0
