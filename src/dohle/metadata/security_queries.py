"""DescribeClientQuotas and DescribeUserScramCredentials, answered from the image.

A log that Kafka wrote may hold quotas that are not enforced here: whoever asks is told of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.steps import PlainSteps, mapped
from dohle.metadata.image import ClusterImage
from dohle.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from dohle.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

_USER, _CLIENT_ID, _IP = "user", "client-id", "ip"
_EXACT, _DEFAULT, _SPECIFIED = range(3)
#: Stands for any name, the default's included.
_ANY: Final = object()


def describe_client_quotas(
    image: ClusterImage, request: DescribeClientQuotasRequest
) -> PlainSteps[DescribeClientQuotasResponse]:
    """Return the quotas of the entities that are asked for; raise for what is no filter."""
    wanted: dict[str, object] = {}
    for component in request.components:
        if component.entity_type in wanted:
            raise _invalid(
                f"Entity type {component.entity_type} cannot appear more than once in the filter."
            )
        wanted[component.entity_type] = _name_wanted(component)
    if _IP in wanted and len(wanted) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )
    found: dict[tuple[tuple[str, bool, str], ...], list[ValueData]] = {}
    for key, record in image.client_quotas.items():
        yield
        names = {kind: name if is_named else None for kind, is_named, name in key.entity}
        if _matches(names, wanted, strict=request.strict):
            found.setdefault(key.entity, []).append(ValueData(key=key.key, value=record.value))
    return DescribeClientQuotasResponse(
        entries=tuple(
            EntryData(
                entity=tuple(
                    EntityData(entity_type=kind, entity_name=name if is_named else None)
                    for kind, is_named, name in entity
                ),
                values=tuple(values),
            )
            for entity, values in found.items()
        ),
    )


def _name_wanted(component: ComponentData) -> object:
    """Return the name, None for the default, or ``_ANY``."""
    if not component.entity_type:
        raise _invalid("Invalid empty entity type.")
    if component.entity_type not in (_USER, _CLIENT_ID, _IP):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {component.entity_type}"
        )
    if component.match_type not in (_EXACT, _DEFAULT, _SPECIFIED):
        raise _invalid(f"Unknown match type {component.match_type}")
    if (component.match is None) is (component.match_type == _EXACT):
        raise _invalid("A name belongs to an exact match, and to no other.")
    return _ANY if component.match_type == _SPECIFIED else component.match


def _matches(
    names: Mapping[str, str | None], wanted: Mapping[str, object], *, strict: bool
) -> bool:
    if strict and names.keys() != wanted.keys():
        return False
    return all(
        kind in names and (name is _ANY or names[kind] == name) for kind, name in wanted.items()
    )


def describe_user_scram_credentials(
    image: ClusterImage, request: DescribeUserScramCredentialsRequest
) -> PlainSteps[DescribeUserScramCredentialsResponse]:
    """Return which mechanisms users have passwords for; of all users if none are named."""
    known: dict[str, list[CredentialInfo]] = {}
    for key, record in sorted(image.scram_credentials.items()):
        info = CredentialInfo(mechanism=key.mechanism, iterations=record.iterations)
        known.setdefault(key.user, []).append(info)
        yield
    asked: Counter[str] = Counter()
    for name in (user.name for user in request.users) if request.users else known:
        asked[name] += 1
        yield
    results = yield from mapped(
        lambda user: _described_user(user, asked[user], known), tuple(asked)
    )
    return DescribeUserScramCredentialsResponse(results=results)


def _described_user(
    user: str, count: int, known: Mapping[str, list[CredentialInfo]]
) -> DescribeUserScramCredentialsResult:
    if count > 1:
        return DescribeUserScramCredentialsResult(
            user=user,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message=f"Cannot describe SCRAM credentials for the same user twice in a single "
            f"request: {user}",
        )
    if user not in known:
        return DescribeUserScramCredentialsResult(
            user=user,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"Attempt to describe a user credential that does not exist: {user}",
        )
    return DescribeUserScramCredentialsResult(user=user, credential_infos=tuple(known[user]))


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
