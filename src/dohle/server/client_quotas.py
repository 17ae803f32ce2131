"""The quotas of this broker's clients: what they have done lately, and how long they must wait.

Quotas are records of the metadata log, and hold for each broker by itself (KIP-13, KIP-124). A
client that has done too much is answered at once, with the time that it should wait, and is not
read from before that is over (KIP-219). Everybody who shares a quota shares a meter.

- Produce requests count with their size when they are answered.
- A fetch counts with the size of its answer, and one that would be too much gets no records.
- The time that the loop works for a connection counts, in percent, from the next answer on. Answers
  to followers and to the login make nobody wait, nor do those of acks=0, which are not sent.
- Connections count for the address that they come from (KIP-612): one that is too many is closed
  after a while.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from dohle.core.config.static import BrokerConfig
from dohle.core.seams import Clock
from dohle.core.steps import PlainSteps
from dohle.metadata.client_quotas import address_entity, client_entity
from dohle.metadata.image import ClusterImage
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.fetch import FetchRequest
from dohle.protocol.schema import Response
from dohle.quotas.addresses import AddressRates
from dohle.quotas.entities import (
    BROKER_KEYS,
    CONSUMER_BYTE_RATE,
    IP_KEYS,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaTable,
)
from dohle.quotas.meters import Meters
from dohle.security.login import Phase
from dohle.server.net.outcome import EncodedResponse

if TYPE_CHECKING:
    from dohle.server.net.connection import Connection
    from dohle.server.net.listener import ConnectionLimits

_PRODUCE, _FETCH = int(ApiKey.PRODUCE), int(ApiKey.FETCH)
#: What brokers ask of each other.
_EXEMPT = frozenset({int(ApiKey.WRITE_TXN_MARKERS)})
#: How many quotas are taken in in one step.
_QUOTAS_PER_STEP = 256
_THROTTLE_MS_MAX = 2**31 - 1


class ClientQuotas:
    """All quotas of clients, and the meters of those that have any."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._clock = clock
        windows = config.get_int("quota.window.num")
        window_ms = config.get_int("quota.window.size.seconds") * 1000
        self._window_ms = window_ms
        self.rules = QuotaTable()
        self.meters = {key: Meters(windows, window_ms) for key in BROKER_KEYS}
        self.address_rates = AddressRates()
        self._connections = Meters(windows, window_ms)
        #: Set by the node: those of its listeners.
        self.connection_limits: ConnectionLimits | None = None
        self._loaded: object = None

    def are_those_of(self, image: ClusterImage) -> bool:
        """Tell whether the quotas of an image are those that were loaded last."""
        return image.client_quotas is self._loaded

    def load(self, image: ClusterImage) -> PlainSteps[None]:
        """Let the quotas of an image take effect, all at once."""
        self._loaded = image.client_quotas
        rules, address_rates = QuotaTable(), AddressRates()
        for number, (quota, record) in enumerate(image.client_quotas.items(), 1):
            if not number % _QUOTAS_PER_STEP:
                yield
            entity = client_entity(quota.entity)
            if entity is not None and quota.key in BROKER_KEYS:
                rules.set(quota.key, entity, record.value)
            address = address_entity(quota.entity)
            if address is not None and quota.key in IP_KEYS:
                address_rates.set(*address, record.value)
        self.rules, self.address_rates = rules, address_rates
        if self.connection_limits is not None:
            self.connection_limits.delay_s = self.connection_delay_s if address_rates else None

    # Requests

    def begin(
        self, connection: Connection, api_key: int, client_id: str, request_bytes: int
    ) -> RequestCharge | None:
        """Return what a request is charged by; None if its sender has no quotas."""
        user, rules = connection.principal.name, self.rules
        if connection.unmetered_by is not rules:
            # What was learnt before may be of a client id that has a quota now.
            connection.shortcuts.clear()
        is_exempt = connection.is_follower and api_key == _FETCH
        if is_exempt or all(rules.find(key, user, client_id) is None for key in BROKER_KEYS):
            connection.unmetered_by, connection.on_used = rules, None
            return None
        connection.unmetered_by = None
        if connection.login is not None and connection.login.phase is not Phase.OPEN:
            return None
        if rules.find(REQUEST_PERCENTAGE, user, client_id) is None:
            connection.on_used = None
        else:
            connection.on_used = partial(self._used, user, client_id)
        return RequestCharge(self, connection, api_key, client_id, request_bytes)

    def _used(self, user: str, client_id: str, seconds: float) -> None:
        """Count the time that the loop has worked for a client."""
        limit = self.rules.find(REQUEST_PERCENTAGE, user, client_id)
        if limit is not None and seconds > 0:
            now_ms = self._clock.monotonic_ms()
            self.meters[REQUEST_PERCENTAGE].count(limit, seconds * 100, now_ms)

    def produced(self, user: str, client_id: str, size: int) -> int:
        """Count a produce request; return for how many milliseconds its sender must wait."""
        limit = self.rules.find(PRODUCER_BYTE_RATE, user, client_id)
        if limit is None:
            return 0
        return self.meters[PRODUCER_BYTE_RATE].take(limit, size, self._clock.monotonic_ms())

    def worked_ms(self, user: str, client_id: str) -> int:
        """Return how long a client must wait for the time it has used: a window at most."""
        limit = self.rules.find(REQUEST_PERCENTAGE, user, client_id)
        if limit is None:
            return 0
        now_ms = self._clock.monotonic_ms()
        return self.meters[REQUEST_PERCENTAGE].take(limit, 0, now_ms, self._window_ms)

    # Connections

    def connection_delay_s(self, host: str) -> float:
        """Count a new connection; if there were too many, return how long it is to be held.

        It is not served then, and not counted. As in Kafka that is for a window at most.
        """
        limit = self.address_rates.find(host)
        if limit is None:
            return 0.0
        throttle_ms = self._connections.take_if_allowed(limit, 1, self._clock.monotonic_ms())
        return min(throttle_ms, self._window_ms) / 1000

    # Fetches

    def fetch_meter(self, user: str, client_id: str) -> FetchMeter | None:
        """Return what a consumer's fetch is measured by; None if it has no quota."""
        keys = CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE
        if all(self.rules.find(key, user, client_id) is None for key in keys):
            return None
        return FetchMeter(self, user, client_id)

    def capped(self, request: FetchRequest, user: str, client_id: str) -> FetchRequest:
        """Return the fetch, cut down to what a client may have that has fetched nothing lately."""
        limit = self.rules.find(CONSUMER_BYTE_RATE, user, client_id)
        if limit is None:
            return request
        bytes_max = int(self.meters[CONSUMER_BYTE_RATE].at_once_max(limit))
        if request.max_bytes <= bytes_max:
            return request
        return request.replace(max_bytes=bytes_max)

    def fetched(self, user: str, client_id: str, size: int) -> int:
        """Count an answer, unless its client must wait: then return for how long."""
        throttle_ms = self.worked_ms(user, client_id)
        limit = self.rules.find(CONSUMER_BYTE_RATE, user, client_id)
        if limit is not None:
            meters, now_ms = self.meters[CONSUMER_BYTE_RATE], self._clock.monotonic_ms()
            own_ms = meters.take_if_allowed(limit, size, now_ms)
            if throttle_ms and not own_ms:
                # It gets nothing because of its other quota.
                meters.count(limit, -size, now_ms)
            throttle_ms = max(throttle_ms, own_ms)
        return min(throttle_ms, _THROTTLE_MS_MAX)


class FetchMeter(NamedTuple):
    """Whose fetch it is, for whoever answers it."""

    quotas: ClientQuotas
    user: str
    client_id: str

    def capped(self, request: FetchRequest) -> FetchRequest:
        """Return a fetch that can be answered within the quota."""
        return self.quotas.capped(request, self.user, self.client_id)

    def take(self, size: int) -> int:
        """Count an answer of this size, or return for how long there is none."""
        return self.quotas.fetched(self.user, self.client_id, size)


class RequestCharge:
    """What a request of a client with quotas costs."""

    __slots__ = ("_api_key", "_client_id", "_connection", "_quotas", "_request_bytes")

    def __init__(
        self,
        quotas: ClientQuotas,
        connection: Connection,
        api_key: int,
        client_id: str,
        request_bytes: int,
    ) -> None:
        self._quotas = quotas
        self._connection = connection
        self._api_key = api_key
        self._client_id = client_id
        self._request_bytes = request_bytes

    def used(self, seconds: float) -> None:
        """Count the time of slices, which the connection does not know of."""
        if self._connection.on_used is not None:
            self._connection.on_used(seconds)

    def settle(
        self, response: Response | EncodedResponse | None
    ) -> Response | EncodedResponse | None:
        """Count the request, mute its connection, and return the answer that tells how long."""
        quotas, api_key, client_id = self._quotas, self._api_key, self._client_id
        connection = self._connection
        user = connection.principal.name
        told_ms = cast("int", getattr(response, "throttle_time_ms", 0))
        throttle_ms = told_ms
        if api_key == _PRODUCE:
            throttle_ms = max(throttle_ms, quotas.produced(user, client_id, self._request_bytes))
        # (Fetches have been looked at before they were answered, and acks=0 has no answer.)
        if api_key != _FETCH and api_key not in _EXEMPT and response is not None:
            throttle_ms = max(throttle_ms, quotas.worked_ms(user, client_id))
        throttle_ms = min(throttle_ms, _THROTTLE_MS_MAX)
        if throttle_ms:
            connection.mute(throttle_ms / 1000)
            if throttle_ms != told_ms and hasattr(response, "throttle_time_ms"):
                response = cast("Response", response).replace(throttle_time_ms=throttle_ms)
        return response
