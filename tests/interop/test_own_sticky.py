"""The assignor ``sticky`` of this project's client beside those of other libraries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.interop.group_consumers import Joining
from tests.interop.members import Ledger, Member, await_settled, await_values, places_of
from tests.interop.quick_broker import Feed, fresh, new_topic, serving

PARTITIONS = 6


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("own-sticky")) as broker:
        yield broker.bootstrap


@pytest.mark.parametrize("order", [("dohle", "aiokafka"), ("aiokafka", "dohle")])
def test_whoever_leads_gives_back_to_members_of_both_libraries_what_they_had(
    order: tuple[str, str], bootstrap: str
) -> None:
    topic = new_topic(bootstrap, PARTITIONS)
    places = places_of(topic, PARTITIONS)
    joining = Joining(
        order[0], bootstrap, fresh("group"), (topic,), strategy="sticky", commits_when_revoked=True
    )
    ledger = Ledger()
    with (
        Feed(bootstrap, topic, PARTITIONS) as feed,
        Member(joining, ledger, "leader") as leader,
        Member(replace(joining, library=order[1]), ledger, "second") as second,
    ):
        await_settled([leader, second], places)
        had = leader.assignment, second.assignment
        # All members of aiokafka in a process share what they had: so there is only one.
        with Member(replace(joining, library="dohle"), ledger, "third") as third:
            await_settled([leader, second, third], places)
            # Six are two for each, so that each keeps two of its three.
            assert leader.assignment < had[0]
            assert second.assignment < had[1]
            assert len(third.assignment) == 2
        await_settled([leader, second], places)
        feed.await_more(PARTITIONS)
        await_values([leader, second, third], feed.written)
        assert ledger.conflicts == []
