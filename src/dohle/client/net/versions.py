"""Which version of each request to send to a broker: the highest that both sides know.

What the codec can encode and what the client can use are not the same: :data:`_USABLE` says where
the client needs more than the oldest versions offer. A version that Kafka marks as unstable is used
only for a request that explicitly asks for it. ApiVersions itself is negotiated by trial, as
KIP-511 says: a broker that does not know the version asked for answers UNSUPPORTED_VERSION in the
oldest format.
"""

from __future__ import annotations

from collections.abc import Iterable

from dohle.core.errors import ErrorCode
from dohle.protocol.apis import ApiKey, find_api
from dohle.protocol.errors import MalformedMessage, UnsupportedVersion
from dohle.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from dohle.protocol.schema import NO_VERSIONS, Buffer, Request, VersionRange

#: Produce: batches of format 2. Metadata: a way to ask for no topic. ListOffsets: one offset and
#: its timestamp. OffsetCommit and OffsetFetch: offsets stored by brokers.
_USABLE = {
    ApiKey.PRODUCE: 3,
    ApiKey.METADATA: 1,
    ApiKey.LIST_OFFSETS: 1,
    ApiKey.OFFSET_COMMIT: 2,
    ApiKey.OFFSET_FETCH: 2,
}

_ERROR_CODE_BYTES = 2


class BrokerVersions:
    """The versions that one broker serves, and the ones to send to it."""

    def __init__(self, broker: str, served: Iterable[ApiVersion]) -> None:
        self._broker = broker
        self._served = {
            entry.api_key: VersionRange(entry.min_version, entry.max_version) for entry in served
        }
        self._chosen: dict[tuple[type[Request], int | None], int] = {}

    def served_range(self, api_key: int) -> VersionRange:
        """Return the versions of an API that the broker serves; an empty range if it has none."""
        return self._served.get(api_key, NO_VERSIONS)

    def serves(self, request: type[Request]) -> bool:
        """Tell whether there is a version of this request that both sides know."""
        return self._common(request) is not None

    def choose(self, request: type[Request], version_max: int | None = None) -> int:
        """Return the highest common version, up to a limit, or raise UnsupportedVersion."""
        chosen = self._chosen.get((request, version_max))
        if chosen is None:
            chosen = self._common(request, version_max)
            if chosen is None:
                name = find_api(request.API_KEY).name
                served = self._served.get(request.API_KEY)
                raise UnsupportedVersion(
                    f"{self._broker} does not serve {name}"
                    if served is None
                    else f"{self._broker} serves {name} in versions {served}, but this client "
                    f"supports {_spoken(request, version_max)}"
                )
            self._chosen[request, version_max] = chosen
        return chosen

    def _common(self, request: type[Request], version_max: int | None = None) -> int | None:
        served = self._served.get(request.API_KEY)
        if served is None:
            return None
        spoken = _spoken(request, version_max)
        highest = min(served.highest, spoken.highest)
        return highest if highest >= max(served.lowest, spoken.lowest) else None


def _spoken(request: type[Request], version_max: int | None = None) -> VersionRange:
    api = find_api(request.API_KEY)
    lowest = max(request.VERSIONS.lowest, _USABLE.get(api.key, 0))
    highest = request.VERSIONS.highest
    if version_max is None:
        return VersionRange(lowest, highest - api.latest_version_unstable)
    return VersionRange(lowest, min(highest, version_max))


def api_versions_refused(body: Buffer) -> int | None:
    """Return the version to retry with if a broker did not know the one requested.

    The error code is the first field in all versions. A broker from before KIP-511 does not say
    what it knows, and some say it in their own way: then the oldest version is safe.
    """
    code = int.from_bytes(memoryview(body)[:_ERROR_CODE_BYTES], "big", signed=True)
    if code != ErrorCode.UNSUPPORTED_VERSION:
        return None
    try:
        answer, _ = ApiVersionsResponse.decode(0, body)
    except MalformedMessage:
        return 0
    for entry in answer.api_keys:
        if entry.api_key == ApiKey.API_VERSIONS:
            return max(0, min(entry.max_version, ApiVersionsRequest.VERSIONS.highest))
    return 0
