"""ApiVersions (18), v0-4.

- Lists exactly the APIs that have a handler on the client's listener, with the versions they serve:
  controllers serve others than brokers.
- A broker lists no more of what it forwards than the active controller serves (A13).
- The response header is always v0. An unknown version gets a v0 answer with error 35 that has this
  API's own range.
- v3+: the client's software name and version must match Kafka's pattern, else 42.
- v3+: supported and finalized features; below v4 those whose minimum is 0 are left out, since old
  Java clients fail on them (KAFKA-17492).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dohle.core.errors import ErrorCode
from dohle.metadata.features import SUPPORTED_FEATURES
from dohle.metadata.metadata_version import KRAFT_VERSION
from dohle.protocol.apis import FORWARDABLE, ApiKey
from dohle.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from dohle.server.net.handler import Handler, serves

if TYPE_CHECKING:
    from dohle.server.frontend import Frontend
    from dohle.server.net.handler import RequestContext

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def with_api_versions(handlers: Mapping[ApiKey, Handler]) -> dict[ApiKey, Handler]:
    """Add a handler that tells of these handlers and itself."""
    found = dict(handlers)

    def handle(
        server: Frontend, context: RequestContext, request: ApiVersionsRequest
    ) -> ApiVersionsResponse:
        return _api_versions(server, context, request, served)

    def unsupported() -> ApiVersionsResponse:
        own = _range(ApiKey.API_VERSIONS, found[ApiKey.API_VERSIONS])
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=(own,))

    key, handler = serves(ApiKey.API_VERSIONS, handle, unsupported=unsupported)
    found[key] = handler
    served = tuple(_range(key, found[key]) for key in sorted(found))
    return found


def _api_versions(
    server: Frontend,
    context: RequestContext,
    request: ApiVersionsRequest,
    served: Sequence[ApiVersion],
) -> ApiVersionsResponse:
    if context.version >= 3:
        names = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE.fullmatch(name) for name in names):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    supported = tuple(
        SupportedFeatureKey(name=name, min_version=levels.lowest, max_version=levels.highest)
        for name, levels in sorted(SUPPORTED_FEATURES.items())
        if context.version >= 4 or levels.lowest > 0
    )
    if context.connection.login is not None:
        context.connection.login.has_asked_versions = True
    image = server.image
    levels = {**image.features, KRAFT_VERSION: server.images.kraft_version}
    finalized = tuple(
        FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
        for name, level in sorted(levels.items())
        # A log may have finalized what does not work here yet.
        if level > 0 and name in SUPPORTED_FEATURES
    )
    return ApiVersionsResponse(
        api_keys=_understood(server, served),
        supported_features=supported,
        finalized_features_epoch=image.offset,
        finalized_features=finalized,
    )


def _understood(server: Frontend, served: Sequence[ApiVersion]) -> tuple[ApiVersion, ...]:
    """Leave out the versions that only this node knows, if the controller has to answer."""
    found = (one if one.api_key not in FORWARDABLE else _common(server, one) for one in served)
    return tuple(one for one in found if one is not None)


def _common(server: Frontend, served: ApiVersion) -> ApiVersion | None:
    """Return the versions that the controller understands too, if it is asked for its answer."""
    of_controller = server.controller_range(served.api_key)
    if of_controller is None:
        return served
    lowest = max(served.min_version, of_controller.lowest)
    highest = min(served.max_version, of_controller.highest)
    if lowest > highest:
        return None
    return ApiVersion(api_key=served.api_key, min_version=lowest, max_version=highest)


def _range(key: ApiKey, handler: Handler) -> ApiVersion:
    lowest = handler.lowest if handler.advertised_lowest is None else handler.advertised_lowest
    return ApiVersion(api_key=key, min_version=lowest, max_version=handler.highest)
