"""AlterClientQuotas (facts: security.md, section 9)."""

from __future__ import annotations

import math

import pytest

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.steps import finish
from dohle.metadata.client_quotas import (
    address_entity,
    alter_client_quotas,
    client_entity,
)
from dohle.metadata.decision import RECORDS_PER_REQUEST_MAX, Decision
from dohle.metadata.image import QuotaKey
from dohle.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
)
from dohle.quotas.entities import Entity
from tests.metadata.cluster import Cluster, cluster

Ops = dict[str, float | None]
PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"
CONNECT = "connection_creation_rate"


def entry(names: dict[str, str | None], ops: Ops) -> AlterClientQuotasRequestEntryData:
    return AlterClientQuotasRequestEntryData(
        entity=tuple(
            EntityData(entity_type=kind, entity_name=name) for kind, name in names.items()
        ),
        ops=tuple(
            OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops.items()
        ),
    )


def alter(
    made: Cluster, *entries: AlterClientQuotasRequestEntryData, validate_only: bool = False
) -> Decision[AlterClientQuotasResponse]:
    request = AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
    decided = finish(alter_client_quotas(made.image, request))
    made.replay(*(each.record for each in decided.records))
    return decided


def codes(decided: Decision[AlterClientQuotasResponse]) -> list[ErrorCode]:
    return [ErrorCode(each.error_code) for each in decided.reply.entries]


def quotas(made: Cluster) -> dict[tuple[Entity | None, str], float]:
    return {
        (client_entity(key.entity), key.key): record.value
        for key, record in made.image.client_quotas.items()
    }


def test_quotas_are_set_changed_and_removed_for_users_client_ids_and_pairs() -> None:
    """9, Entities: name null is the default."""
    made = cluster()
    decided = alter(
        made,
        entry({"user": "ann"}, {PRODUCE: 1000, FETCH: 2000}),
        entry({"client-id": None}, {PRODUCE: 3000}),
        entry({"user": None, "client-id": "c"}, {FETCH: 4000}),
    )
    assert codes(decided) == [ErrorCode.NONE] * 3
    assert quotas(made) == {
        (Entity("ann", ""), PRODUCE): 1000,
        (Entity("ann", ""), FETCH): 2000,
        (Entity("", None), PRODUCE): 3000,
        (Entity(None, "c"), FETCH): 4000,
    }
    alter(made, entry({"user": "ann"}, {PRODUCE: 500, FETCH: None}))
    assert quotas(made)[Entity("ann", ""), PRODUCE] == 500
    assert (Entity("ann", ""), FETCH) not in quotas(made)


@pytest.mark.parametrize(
    ("names", "ops"),
    [
        ({}, {PRODUCE: 1.0}),
        ({"group": "g"}, {PRODUCE: 1.0}),
        ({"user": ""}, {PRODUCE: 1.0}),
        ({"ip": "1.2.3.4", "user": "ann"}, {PRODUCE: 1.0}),
        ({"user": "ann"}, {"no_such_key": 1.0}),
        ({"user": "ann"}, {CONNECT: 1.0}),
        ({"ip": "no host"}, {CONNECT: 1.0}),
        ({"ip": "1.2.3.4"}, {CONNECT: 1.5}),
        ({"ip": "1.2.3.4"}, {CONNECT: 2.0**31}),
        ({"ip": "1.2.3.4"}, {PRODUCE: 1.0}),
        ({"user": "ann"}, {PRODUCE: 0.0}),
        ({"user": "ann"}, {PRODUCE: -1.0}),
        ({"user": "ann"}, {PRODUCE: math.nan}),
        ({"user": "ann"}, {PRODUCE: math.inf}),
        ({"user": "ann"}, {PRODUCE: 1e19}),
        ({"user": "ann"}, {PRODUCE: 1.5}),
    ],
)
def test_what_is_no_quota_is_refused(names: dict[str, str | None], ops: Ops) -> None:
    """9, AlterClientQuotas: 42 for each of these, and others of the request are done."""
    made = cluster()
    bad = AlterClientQuotasRequestEntryData(
        entity=entry(names, {}).entity,
        ops=tuple(OpData(key=key, value=value or 0.0) for key, value in ops.items()),
    )
    decided = alter(made, bad, entry({"user": "bob"}, {PRODUCE: 7}))
    assert codes(decided) == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert quotas(made) == {(Entity("bob", ""), PRODUCE): 7}


def test_some_quotas_may_be_fractions() -> None:
    """9, Entities: controller_mutation_rate and request_percentage are doubles."""
    made = cluster()
    fractions: Ops = {"controller_mutation_rate": 0.5, "request_percentage": 12.5}
    assert codes(alter(made, entry({"user": "ann"}, fractions))) == [ErrorCode.NONE]
    assert len(quotas(made)) == 2


def test_addresses_have_quotas_of_their_own() -> None:
    """9, Entities: ip, with connection_creation_rate."""
    made = cluster()
    addresses: list[str | None] = ["1.2.3.4", "::1", None]
    decided = alter(made, *(entry({"ip": name}, {CONNECT: 5}) for name in addresses))
    assert codes(decided) == [ErrorCode.NONE] * 3
    kept = {address_entity(key.entity) for key in made.image.client_quotas}
    assert kept == {("1.2.3.4",), ("::1",), (None,)}


def test_of_an_entity_with_one_bad_quota_none_is_set() -> None:
    """9, AlterClientQuotas."""
    made = cluster()
    assert codes(alter(made, entry({"user": "ann"}, {PRODUCE: 5, FETCH: 0.5}))) == [42]
    assert quotas(made) == {}


def test_a_key_or_an_entity_twice_is_refused() -> None:
    """9, AlterClientQuotas: key twice, entity twice, in whatever order its parts are."""
    made = cluster()
    op = OpData(key=PRODUCE, value=5.0)
    twice = AlterClientQuotasRequestEntryData(entity=entry({"user": "a"}, {}).entity, ops=(op, op))
    assert codes(alter(made, twice)) == [ErrorCode.INVALID_REQUEST]
    assert quotas(made) == {}
    decided = alter(
        made,
        entry({"user": "a", "client-id": "c"}, {PRODUCE: 1}),
        entry({"client-id": "c", "user": "a"}, {PRODUCE: 2}),
    )
    assert codes(decided) == [ErrorCode.INVALID_REQUEST]
    assert quotas(made) == {(Entity("a", "c"), PRODUCE): 1}


def test_what_changes_nothing_is_success_without_a_record() -> None:
    """9, AlterClientQuotas: removing what is not set, even an unknown key, and the same value."""
    made = cluster()
    alter(made, entry({"user": "ann"}, {PRODUCE: 5}))
    decided = alter(made, entry({"user": "ann"}, {PRODUCE: 5, FETCH: None, "no_such_key": None}))
    assert (codes(decided), decided.records) == ([ErrorCode.NONE], ())


def test_a_request_can_be_validated_only() -> None:
    """9, AlterClientQuotas: validate_only."""
    made = cluster()
    decided = alter(made, entry({"user": "ann"}, {PRODUCE: 5}), validate_only=True)
    assert (codes(decided), decided.records, quotas(made)) == ([ErrorCode.NONE], (), {})


def test_a_request_makes_no_more_records_than_fit_a_batch() -> None:
    """9, AlterClientQuotas: no more than 10000 records."""
    many = [entry({"user": f"u{n}"}, {PRODUCE: 5}) for n in range(RECORDS_PER_REQUEST_MAX + 1)]
    with pytest.raises(KafkaError) as raised:
        alter(cluster(), *many)
    assert raised.value.code is ErrorCode.POLICY_VIOLATION


def test_records_have_the_parts_of_an_entity_in_one_order() -> None:
    made = cluster()
    alter(made, entry({"user": "a", "client-id": "c"}, {PRODUCE: 1}))
    key = QuotaKey((("client-id", True, "c"), ("user", True, "a")), PRODUCE)
    assert made.image.client_quotas[key].value == 1
