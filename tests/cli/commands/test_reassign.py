"""``dohle cluster reassign`` where there is one broker: what there is to see, and directories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dohle.cli.options import bytes_per_second
from tests.cli.running import Command, Started, dohle
from tests.cli.terminals import run_on_terminal


def plan_file(path: Path, topic: str, *directories: str) -> str:
    entry = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": list(directories)}
    path.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    return str(path)


def test_a_plan_that_is_carried_out_already_changes_nothing(
    command: Command, tmp_path: Path
) -> None:
    command.out("topic", "create", "carried-out", "--partitions", "1")
    plan = plan_file(tmp_path / "plan.json", "carried-out", "any")
    (row,) = command.json("cluster", "reassign", "execute", plan, "--wait")
    assert (row["state"], row["replicas"], row["planned"]) == ("completed", [1], [1])
    assert command.json("cluster", "reassign", "list") == []
    assert command.json("cluster", "reassign", "cancel", "--all") == []
    (planned,) = command.json("cluster", "reassign", "plan", "carried-out")
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
    assert "there are too few brokers: 1 may be used (1)" in command.error(*reassign, *many)
    elsewhere = ("plan", "refused", "--to", "7")
    assert "broker 7 is not in the cluster" in command.error(*reassign, *elsewhere)
    unknown = ("plan", "--remove", "9")
    assert "broker 9 is not in the cluster, and has no replicas" in command.error(
        *reassign, *unknown
    )
    missing = plan_file(tmp_path / "plan.json", "nowhere", "any")
    assert "there is no topic nowhere" in command.error(*reassign, "execute", missing)
    assert "name the plan" in command.error(*reassign, "cancel", code=2)
    present = plan_file(tmp_path / "present.json", "refused", "any")
    rollback = ("execute", present, "--rollback", present)
    assert "is there already: name another file" in command.error(*reassign, *rollback)
    for rate in ("0", "50 apples", "-1", "0MB"):
        _, err = command.run(*reassign, "execute", present, f"--throttle={rate}", code=2)
        assert "bytes per second above 0, such as 50000000" in err


@pytest.mark.parametrize(
    ("text", "rate"),
    [("300", 300), ("300B", 300), ("50MB", 50_000_000), ("50m", 50_000_000), ("2KiB", 2048)],
)
def test_a_throttle_may_have_a_unit(text: str, rate: int) -> None:
    assert bytes_per_second(text) == rate


def test_when_there_is_nothing_to_do_that_is_said(command: Command) -> None:
    command.out("topic", "create", "balanced", "--partitions", "1")
    for arguments, said in (
        (("plan", "balanced"), "nothing is to be moved"),
        (("list",), "nothing is being reassigned"),
        (("cancel", "--all"), "nothing was going on"),
    ):
        out, err = command.run("cluster", "reassign", *arguments)
        assert (out, err) == ("", f"dohle: note: {said}\n")


def test_what_is_gone_with_its_topic_is_done_with(command: Command, tmp_path: Path) -> None:
    """Of the topics of a plan one was deleted; the throttle of the other is removed."""
    for topic in ("stays-on", "gone-meanwhile"):
        command.out("topic", "create", topic, "--partitions", "1")
    entries = [
        {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": ["any"]}
        for topic in ("gone-meanwhile", "stays-on")
    ]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": entries}))

    def throttles() -> list[str]:
        return [
            row["name"]
            for kind in (("topic", "stays-on"), ("broker", "1"))
            for row in command.json("config", "describe", *kind)
            if "throttled" in row["name"] and row["value"] not in (None, "", str(2**63 - 1))
        ]

    for end in (("verify", str(plan)), ("cancel", str(plan))):
        command.run("cluster", "reassign", "execute", str(plan), "--throttle", "5MB")
        assert throttles()
        command.out("topic", "delete", "gone-meanwhile")
        out, _ = command.run("cluster", "reassign", *end, "--json")
        states = [json.loads(line).get("state") for line in out.splitlines()]
        assert states == (["gone", "completed"] if end[0] == "verify" else [])
        assert throttles() == []
        command.out("topic", "create", "gone-meanwhile", "--partitions", "1")


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
