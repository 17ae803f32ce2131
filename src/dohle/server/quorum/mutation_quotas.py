"""The quotas of clients that have partitions created and deleted, at the controller (KIP-599)."""

from __future__ import annotations

from dohle.core.config.static import BrokerConfig
from dohle.core.seams import Clock
from dohle.core.steps import PlainSteps
from dohle.metadata.client_quotas import client_entity
from dohle.metadata.image import ClusterImage
from dohle.protocol.messages.create_partitions import CreatePartitionsRequest
from dohle.protocol.messages.create_topics import CreateTopicsRequest
from dohle.protocol.messages.delete_topics import DeleteTopicsRequest
from dohle.protocol.schema import Request
from dohle.quotas.entities import CONTROLLER_MUTATION_RATE, QuotaTable
from dohle.quotas.mutations import Buckets, Spending
from dohle.server.channel import Client

#: From these versions on clients understand that they are refused; others are served, and wait.
_STRICT: dict[type[Request], int] = {
    CreateTopicsRequest: 6,
    DeleteTopicsRequest: 5,
    CreatePartitionsRequest: 3,
}
_QUOTAS_PER_STEP = 256


class MutationQuotas:
    """What clients have left to spend. It is not kept when another controller takes over."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._clock = clock
        windows = config.get_int("controller.quota.window.num")
        self._buckets = Buckets(windows * config.get_int("controller.quota.window.size.seconds"))
        self._rules = QuotaTable()
        self._known: object = None

    def spending(
        self, image: ClusterImage, client: Client, request: Request, version: int
    ) -> PlainSteps[Spending | None]:
        """Return what a request pays by; None if that is not limited."""
        strict_since = _STRICT.get(type(request))
        if strict_since is None:
            return None
        if image.client_quotas is not self._known:
            yield from self._load(image)
        limit = self._rules.find(CONTROLLER_MUTATION_RATE, client.principal.name, client.client_id)
        if limit is None:
            return None
        now_ms, is_strict = self._clock.monotonic_ms, version >= strict_since
        return self._buckets.spending(limit, now_ms, is_strict=is_strict)

    def _load(self, image: ClusterImage) -> PlainSteps[None]:
        rules = QuotaTable()
        for number, (quota, record) in enumerate(image.client_quotas.items(), 1):
            if not number % _QUOTAS_PER_STEP:
                yield
            entity = client_entity(quota.entity)
            if entity is not None and quota.key == CONTROLLER_MUTATION_RATE:
                rules.set(quota.key, entity, record.value)
        self._rules, self._known = rules, image.client_quotas
