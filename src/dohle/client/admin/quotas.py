"""Lists, sets and removes client quotas. The active controller decides about changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dohle.client.admin.requests import AdminRequests, sort_out
from dohle.client.admin.results import Results
from dohle.client.errors import answered_error
from dohle.client.net.connection import Connection
from dohle.protocol.messages import alter_client_quotas as altering
from dohle.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

#: Whom a quota concerns: pairs of a type (user, client-id, ip) and a name, in the order of types.
#: The name None stands for all that have no quota of their own.
QuotaEntity = tuple[tuple[str, str | None], ...]

_EXACT, _DEFAULT, _SPECIFIED = range(3)


class QuotaFilter(NamedTuple):
    """Which entities are wanted: those with a part of this type and name, or with any name."""

    entity_type: str
    name: str | None = None
    any_name: bool = False


class QuotaAdmin(AdminRequests):
    """The part of an admin client for quotas."""

    async def describe_client_quotas(
        self, wanted: Iterable[QuotaFilter] = (), *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return the quotas of entities that all filters match; ``strict``: with nothing else."""
        request = DescribeClientQuotasRequest(
            components=tuple(map(_component, wanted)), strict=strict
        )

        async def ask(connection: Connection) -> dict[QuotaEntity, dict[str, float]]:
            answer = await connection.request(request, DescribeClientQuotasResponse)
            if answer.error_code:
                raise answered_error(answer.error_code, "client quotas", answer.error_message)
            return {
                _entity((part.entity_type, part.entity_name) for part in entry.entity): {
                    each.key: each.value for each in entry.values
                }
                for entry in answer.entries or ()
            }

        return await self._ask_any("describe client quotas", ask)

    async def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
    ) -> Results[QuotaEntity, None]:
        """Set the quotas of entities, by key; None removes one, if it is set."""
        request = altering.AlterClientQuotasRequest(
            entries=tuple(
                altering.AlterClientQuotasRequestEntryData(
                    entity=tuple(
                        altering.EntityData(entity_type=kind, entity_name=name)
                        for kind, name in entity
                    ),
                    ops=tuple(
                        altering.OpData(key=key, value=value or 0.0, remove=value is None)
                        for key, value in quotas.items()
                    ),
                )
                for entity, quotas in changes.items()
            ),
            validate_only=validate_only,
        )

        async def ask(connection: Connection) -> Results[QuotaEntity, None]:
            answer = await connection.request(request, altering.AlterClientQuotasResponse)
            return sort_out(
                (
                    entity := _entity((part.entity_type, part.entity_name) for part in each.entity),
                    each.error_code,
                    f"the quotas of {entity_text(entity)}",
                    each.error_message,
                    None,
                )
                for each in answer.entries
            )

        return await self._ask_controller("alter client quotas", ask)


def entity_text(entity: QuotaEntity) -> str:
    """Return whom a quota concerns, in words."""
    return ", ".join(
        f"{kind} {name}" if name is not None else f"the default {kind}" for kind, name in entity
    )


def _entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    return tuple(sorted(parts, key=lambda part: part[0]))


def _component(wanted: QuotaFilter) -> ComponentData:
    kind, name, any_name = wanted
    if any_name:
        return ComponentData(entity_type=kind, match_type=_SPECIFIED, match=None)
    match_type = _DEFAULT if name is None else _EXACT
    return ComponentData(entity_type=kind, match_type=match_type, match=name)
