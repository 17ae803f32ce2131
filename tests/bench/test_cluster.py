"""The comparison of clusters, as far as nothing is measured; the long tests play each part."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from bench.cluster import failover, partitions, replay
from bench.cluster.__main__ import PROGRAM
from bench.cluster.catch_up import Look, spent
from bench.cluster.nodes import NODES
from bench.cluster.topics import replicas
from bench.cluster.turns import PARTS, find_part
from bench.comparison.figures import Comparison, Measure
from bench.comparison.warm_up import Limits, Phase, WarmUp
from bench.versus.figures import DOHLE, KAFKA, Figure
from bench.versus.taking_turns import Outcome, Skipped, play

ROOT = Path(__file__).parents[2]
LIMITS = Limits(1.0, 2.0, 0.5)
PART_S_MAX = 600


def outcome(value: float) -> Outcome:
    figure = Figure("a leader is killed", Measure.UNAVAILABLE, value)
    return Outcome([figure], WarmUp(1.0, (), Phase.SETTLED))


def test_both_take_turns_and_become_one_comparison() -> None:
    turns: list[str] = []

    def take(server: str) -> Outcome:
        turns.append(server)
        return outcome(2.0 if server == DOHLE else 4.0)

    told: list[str] = []
    played = play("a part", take, LIMITS, rounds=2, tell=told.append)
    assert turns == [DOHLE, KAFKA, DOHLE, KAFKA]
    assert len(told) == 4
    (row,) = played.rows
    assert (row.ratio, row.verdict) == (0.5, "reached (≤ 1)")


def test_a_part_that_a_cluster_cannot_play_is_skipped_with_the_reason() -> None:
    def take(server: str) -> Outcome:
        raise Skipped("a transaction cannot be ended")

    with pytest.raises(Skipped, match="a part is skipped: dohle: a transaction cannot be ended"):
        play("a part", take, LIMITS, rounds=1, tell=print)


def test_the_share_of_a_follower_is_judged_by_itself_and_not_beside_kafka() -> None:
    cheap = Comparison("replay", "a follower", Measure.FOLLOWER, (0.4,), (0.1,))
    assert (cheap.is_reached, cheap.verdict) == (True, "reached (itself ≤ 0.5)")
    dear = Comparison("replay", "a follower", Measure.FOLLOWER, (0.6,), (0.9,))
    assert (dear.is_reached, dear.verdict) == (False, "MISSED (itself ≤ 0.5)")


def test_a_follower_is_compared_with_the_leader_by_what_each_has_spent() -> None:
    assert replay.follower_share({1: 4.0, 2: 1.0, 3: 2.0}) == pytest.approx(0.375)


def test_every_partition_has_a_replica_on_each_node_and_its_leader_first() -> None:
    assert [replicas(leader) for leader in NODES] == [(1, 2, 3), (2, 3, 1), (3, 1, 2)]


def test_a_thousand_partitions_are_led_by_all_nodes_alike() -> None:
    led = [partitions.leaders().count(node) for node in NODES]
    assert (sum(led), max(led) - min(led)) == (1_000, 1)


def test_the_longest_time_without_an_acknowledgement_counts() -> None:
    assert failover.longest_gap([0.0, 0.1, 0.2, 3.4, 3.5]) == pytest.approx(3.2)


def test_catching_up_is_counted_from_the_first_write_and_not_from_the_start() -> None:
    looks = [
        Look(0.0, 1_000, 0.1),
        Look(5.0, 1_000, 2.0),
        Look(6.0, 501_000, 2.3),
        Look(7.0, 1_001_000, 2.5),
    ]
    sample = spent(looks)
    assert (sample.seconds, sample.size) == (2.0, 1_000_000)
    assert sample.cpu_s == pytest.approx(0.5)


def test_the_help_names_every_part_and_option() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.cluster", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    text = " ".join(done.stdout.split())
    for letter, name in PARTS.items():
        assert f"{letter}, {name}: {find_part(name).TITLE}" in text
    for option in ("rounds", "quick", "json", "strict", "warm-up", "profile", "alone"):
        assert f"--{option}" in text


def test_results_are_kept_beside_those_of_other_comparisons() -> None:
    assert PROGRAM.report.path == ROOT / "bench" / "results" / "cluster.json"


@pytest.mark.long
@pytest.mark.timeout(PART_S_MAX)
@pytest.mark.parametrize("name", PARTS.values())
def test_dohle_alone_plays_each_part(name: str) -> None:
    command = [sys.executable, "-m", "bench.cluster", "--alone", "--quick", name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert find_part(name).TITLE in done.stdout
