"""Quotas and passwords that a log written by Kafka may hold."""

from __future__ import annotations

from dohle.core.errors import ErrorCode
from dohle.core.steps import finish
from dohle.metadata.security_queries import (
    describe_client_quotas,
    describe_user_scram_credentials,
)
from dohle.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from dohle.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from dohle.protocol.messages.records.cluster_metadata import (
    ClientQuotaRecord,
    EntityData,
    UserScramCredentialRecord,
)
from tests.metadata.cluster import Cluster, cluster

EXACT, DEFAULT, SPECIFIED = range(3)


def quota(value: float, **names: str | None) -> ClientQuotaRecord:
    entity = tuple(
        EntityData(entity_type=kind.replace("_", "-"), entity_name=name)
        for kind, name in names.items()
    )
    return ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=value)


def with_quotas() -> Cluster:
    made = cluster()
    made.replay(
        quota(1, user="ann"),
        quota(2, user=None),
        quota(3, user="ann", client_id="c"),
        quota(4, ip="1"),
    )
    return made


def found(
    made: Cluster, *components: tuple[str, int, str | None], strict: bool = False
) -> set[float]:
    request = DescribeClientQuotasRequest(
        components=tuple(
            ComponentData(entity_type=kind, match_type=match, match=name)
            for kind, match, name in components
        ),
        strict=strict,
    )
    entries = finish(describe_client_quotas(made.image, request)).entries or ()
    return {value.value for entry in entries for value in entry.values}


def test_quotas_are_found_by_the_names_of_their_entities() -> None:
    made = with_quotas()
    assert found(made) == {1, 2, 3, 4}
    assert found(made, ("user", EXACT, "ann")) == {1, 3}
    assert found(made, ("user", EXACT, "ann"), strict=True) == {1}
    assert found(made, ("user", DEFAULT, None)) == {2}
    assert found(made, ("user", SPECIFIED, None)) == {1, 2, 3}
    assert found(made, ("user", EXACT, "ann"), ("client-id", SPECIFIED, None)) == {3}
    assert found(made, ("ip", EXACT, "2")) == set()


def test_users_with_passwords_are_told_by_mechanism() -> None:
    made = cluster()
    made.replay(
        UserScramCredentialRecord(name="ann", mechanism=1, salt=b"s", iterations=4096),
        UserScramCredentialRecord(name="ann", mechanism=2, salt=b"s", iterations=8192),
        UserScramCredentialRecord(name="bob", mechanism=2, salt=b"s", iterations=5000),
    )
    everybody = finish(
        describe_user_scram_credentials(made.image, DescribeUserScramCredentialsRequest(users=None))
    )
    assert {
        one.user: [(info.mechanism, info.iterations) for info in one.credential_infos]
        for one in everybody.results
    } == {"ann": [(1, 4096), (2, 8192)], "bob": [(2, 5000)]}
    users = tuple(UserName(name=name) for name in ("ann", "eve", "bob", "bob"))
    asked = finish(
        describe_user_scram_credentials(
            made.image, DescribeUserScramCredentialsRequest(users=users)
        )
    )
    assert {one.user: ErrorCode(one.error_code) for one in asked.results} == {
        "ann": ErrorCode.NONE,
        "eve": ErrorCode.RESOURCE_NOT_FOUND,
        "bob": ErrorCode.DUPLICATE_RESOURCE,
    }
