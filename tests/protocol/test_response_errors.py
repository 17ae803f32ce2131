"""Error codes are found wherever a response has them."""

from __future__ import annotations

from dohle.core.ids import TopicName
from dohle.protocol.apis import APIS
from dohle.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from dohle.protocol.messages.heartbeat import HeartbeatResponse
from dohle.protocol.response_errors import error_codes_of


def test_codes_of_the_response_and_of_its_parts_are_listed() -> None:
    partitions = tuple(PartitionData(partition_index=0, error_code=code) for code in (0, 6, 3))
    topic = FetchableTopicResponse(topic=TopicName("t"), partitions=partitions)
    response = FetchResponse(error_code=70, responses=(topic, topic))
    assert sorted(error_codes_of(FetchResponse)(response)) == [0, 0, 3, 3, 6, 6, 70]
    assert list(error_codes_of(HeartbeatResponse)(HeartbeatResponse(error_code=27))) == [27]


def test_every_response_can_be_asked() -> None:
    for api in APIS.values():
        kind = api.response()
        assert set(error_codes_of(kind)(kind())) <= {0}
