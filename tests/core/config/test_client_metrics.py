from __future__ import annotations

import pytest

from dohle.core.config.client_metrics import validate_client_metrics_overrides
from dohle.core.errors import ErrorCode, KafkaError


def test_a_subscription_names_metrics_an_interval_and_clients() -> None:
    validate_client_metrics_overrides("mine", {})
    validate_client_metrics_overrides(
        "mine",
        {
            "metrics": "org.apache.kafka.producer.,org.apache.kafka.consumer.",
            "interval.ms": "100",
            "match": "client_software_name=librdkafka, client_id=b.*",
        },
    )


@pytest.mark.parametrize(
    ("name", "pairs", "code"),
    [
        ("", {}, ErrorCode.INVALID_REQUEST),
        ("mine", {"colour": "red"}, ErrorCode.INVALID_REQUEST),
        ("mine", {"interval.ms": "99"}, ErrorCode.INVALID_REQUEST),
        ("mine", {"interval.ms": "3600001"}, ErrorCode.INVALID_REQUEST),
        ("mine", {"interval.ms": "soon"}, ErrorCode.INVALID_CONFIG),
        ("mine", {"match": "client_id"}, ErrorCode.INVALID_CONFIG),
        ("mine", {"match": "client_id=["}, ErrorCode.INVALID_CONFIG),
        ("mine", {"match": "colour=red"}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_what_is_no_subscription_is_refused(
    name: str, pairs: dict[str, str], code: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as caught:
        validate_client_metrics_overrides(name, pairs)
    assert caught.value.code is code
