"""What a member's heartbeat reports."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dohle.core.ids import TopicName, Uuid
from dohle.core.steps import finish
from dohle.groups.consumer.report import report_of
from dohle.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)

TOPIC_IDS = st.sampled_from([Uuid(bytes([number]) * 16) for number in range(3)])


@given(
    st.none() | st.lists(st.tuples(TOPIC_IDS, st.lists(st.integers(0, 5)))),
    st.none() | st.lists(st.text("abc", max_size=2)),
)
def test_a_report_joins_what_a_member_says_of_a_topic_and_sorts_its_names(
    owned: list[tuple[Uuid, list[int]]] | None, names: list[str] | None
) -> None:
    request = ConsumerGroupHeartbeatRequest(
        topic_partitions=None
        if owned is None
        else tuple(
            TopicPartitions(topic_id=topic_id, partitions=tuple(partitions))
            for topic_id, partitions in owned
        ),
        subscribed_topic_names=None if names is None else tuple(map(TopicName, names)),
    )
    report = finish(report_of(request))
    if owned is None:
        assert report.owned is None
    else:
        assert report.owned == {
            topic_id: frozenset(
                index for other, partitions in owned if other == topic_id for index in partitions
            )
            for topic_id, _ in owned
        }
    if names is None:
        assert (report.subscribed_topic_names, report.sorted_names) == (None, None)
    else:
        assert report.subscribed_topic_names == frozenset(names)
        assert report.sorted_names == tuple(sorted(set(names)))
