"""AlterUserScramCredentials (facts: security.md, section 4, SCRAM)."""

from __future__ import annotations

import pytest

from dohle.core.errors import ErrorCode, KafkaError
from dohle.metadata.decision import Decision
from dohle.metadata.image import EMPTY_IMAGE, ScramKey
from dohle.metadata.scram import alter_user_scram_credentials
from dohle.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tests.metadata.cluster import Cluster, cluster


def keys(mechanism: int, salted_password: bytes) -> tuple[bytes, bytes]:
    return b"stored" + salted_password, b"server" + salted_password


def upsertion(name: str, mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"s", salted_password=b"p"
    )


def deletion(name: str, mechanism: int = 1) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(
    made: Cluster,
    deletions: tuple[ScramCredentialDeletion, ...] = (),
    upsertions: tuple[ScramCredentialUpsertion, ...] = (),
) -> Decision[AlterUserScramCredentialsResponse]:
    request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
    decided = alter_user_scram_credentials(made.image, request, keys)
    made.replay(*(each.record for each in decided.records))
    return decided


def errors(decided: Decision[AlterUserScramCredentialsResponse]) -> dict[str, ErrorCode]:
    return {each.user: ErrorCode(each.error_code) for each in decided.reply.results}


def test_keys_are_kept_and_no_password() -> None:
    made = cluster()
    assert errors(alter(made, upsertions=(upsertion("ann"), upsertion("bob", 2)))) == {
        "ann": ErrorCode.NONE,
        "bob": ErrorCode.NONE,
    }
    found = made.image.scram_credentials[ScramKey(1, "ann")]
    assert (found.stored_key, found.server_key, found.salt) == (b"storedp", b"serverp", b"s")
    assert errors(alter(made, deletions=(deletion("ann"),))) == {"ann": ErrorCode.NONE}
    assert [key.user for key in made.image.scram_credentials] == ["bob"]


def test_what_is_wrong_is_told_for_each_user_and_the_rest_is_done() -> None:
    """Section 4, AlterUserScramCredentials(51)."""
    made = cluster()
    decided = alter(
        made,
        deletions=(deletion("eve"), deletion("odd", 3)),
        upsertions=(
            upsertion("ann"),
            upsertion("twice"),
            upsertion("twice", 2),
            upsertion(""),
            upsertion("weak", iterations=4095),
            upsertion("slow", iterations=16_385),
            upsertion("none", 0),
            upsertion("open").replace(salted_password=b""),
        ),
    )
    assert errors(decided) == {
        "eve": ErrorCode.RESOURCE_NOT_FOUND,
        "twice": ErrorCode.DUPLICATE_RESOURCE,
        "odd": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        "ann": ErrorCode.NONE,
        "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "weak": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "slow": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "none": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        "open": ErrorCode.UNACCEPTABLE_CREDENTIAL,
    }
    assert [key.user for key in made.image.scram_credentials] == ["ann"]


def test_of_a_user_that_is_named_twice_the_first_error_is_told_and_nothing_is_done() -> None:
    """As Kafka answers (``security/refused-passwords``): deletions come before upsertions."""
    made = cluster()
    alter(made, upsertions=(upsertion("known"),))
    decided = alter(
        made,
        deletions=(deletion("unknown"), deletion("known")),
        upsertions=(
            upsertion("unknown"),
            upsertion("known", iterations=5000),
            upsertion("weak", iterations=1),
            upsertion("weak"),
            upsertion("thrice"),
            upsertion("thrice", iterations=1),
            upsertion("thrice"),
        ),
    )
    assert errors(decided) == {
        "unknown": ErrorCode.RESOURCE_NOT_FOUND,
        "known": ErrorCode.DUPLICATE_RESOURCE,
        "weak": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "thrice": ErrorCode.DUPLICATE_RESOURCE,
    }
    assert decided.records == ()
    assert made.image.scram_credentials[ScramKey(1, "known")].iterations == 4096


def test_a_log_of_an_old_level_holds_no_passwords() -> None:
    """Section 4: "Needs metadata.version ≥ 3.5-IV2, else 35"."""
    request = AlterUserScramCredentialsRequest(upsertions=(upsertion("ann"),))
    with pytest.raises(KafkaError) as caught:
        alter_user_scram_credentials(EMPTY_IMAGE, request, keys)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
