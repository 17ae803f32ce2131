"""Three controllers in the simulator: commands are carried out, and survive whatever fails."""

from __future__ import annotations

from random import Random

import pytest

from dohle.testing.simulation.world import World
from tests.seeds import seeds
from tests.server.quorum.simulated_controllers import SimulatedControllers
from tests.server.quorum.simulated_quorum import start_all, strike


def test_another_controller_goes_on_where_the_active_one_died() -> None:
    world = World(1)
    controllers = SimulatedControllers(world, 3)
    start_all(controllers)
    world.run_until(lambda: len(controllers.promised) >= 30, 40)
    old = controllers.leader
    assert old is not None
    old.kill()
    promised = len(controllers.promised)
    world.run_until(lambda: len(controllers.promised) >= promised + 5, 20)
    controllers.start(old)
    controllers.is_over = True
    world.run_until(lambda: controllers.all_know(max(controllers.promised) + 1), 20)
    assert controllers.snapshots_told
    controllers.check()
    world.close()


SEEDS = 50
FEW_SEEDS = 2


@pytest.mark.parametrize(
    "seed",
    [
        *range(FEW_SEEDS),
        *(
            pytest.param(seed, marks=pytest.mark.long)
            for seed in seeds(FEW_SEEDS, SEEDS - FEW_SEEDS)
        ),
    ],
)
def test_no_command_that_was_answered_is_lost_and_images_are_equal(seed: int) -> None:
    world = World(seed)
    rng = Random(seed)
    controllers = SimulatedControllers(world, 3, rng.randint(0, 1), kraft_version=rng.randint(0, 1))
    start_all(controllers)
    for _ in range(rng.randint(2, 5)):
        world.run_for(rng.uniform(0.5, 4))
        strike(controllers, rng)
    world.network.mend()
    world.on_exit = controllers.start
    start_all(controllers)
    promised = len(controllers.promised)
    world.run_until(lambda: len(controllers.promised) > promised + 3, 60)
    controllers.is_over = True
    world.run_until(lambda: controllers.all_know(max(controllers.promised) + 1), 60)
    controllers.check()
    world.close()
