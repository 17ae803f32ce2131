"""A node with a remote tier whose power fails (T27.1-2)."""

from __future__ import annotations

from random import Random

import pytest

from tests.server.tier.tiered_world import TieredWorld


@pytest.mark.parametrize("seed", range(10))
def test_a_power_cut_takes_nothing_from_the_disk_that_the_metadata_does_not_know_of(
    seed: int,
) -> None:
    """T27.1-2: of a log a prefix stays, and its start is where it was.

    Deleted files are gone with the power; so the record that says that they are remote must not be.
    """
    tiered, rng = TieredWorld(seed), Random(seed)
    try:
        tiered.produce()
        tiered.world.run_for(2 * rng.expovariate(1))
        tiered.machine.power_off(rng)
        tiered.start()
        tiered.world.run_for(10)
        assert tiered.log.log_start_offset == 0
        found = tiered.read()
        assert found == {o: text for o, text in tiered.acknowledged.items() if o < len(found)}
        tiered.check_tier()
    finally:
        tiered.close()
