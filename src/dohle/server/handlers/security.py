"""What Kafka answers about security on a plaintext listener.

CreateDelegationToken (38) v1-3, RenewDelegationToken (39) v1-2, ExpireDelegationToken (40) v1-2,
DescribeDelegationToken (41) v1-3, DescribeClientQuotas (48) v0-1, AlterClientQuotas (49) v0-1,
DescribeUserScramCredentials (50) v0.

- Delegation tokens: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as nobody has authenticated.
- The controller decides about changes of quotas (``dohle.metadata.client_quotas``). What is told of
  them, and of who has a password, is what this node knows (``dohle.metadata``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.steps import PlainSteps
from dohle.metadata import security_queries
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from dohle.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from dohle.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from dohle.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from dohle.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from dohle.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from dohle.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from dohle.server.net.handler import Handler, serves

if TYPE_CHECKING:
    from dohle.server.frontend import Frontend
    from dohle.server.net.handler import RequestContext

_NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
_NO_TIME = -1
#: The version from which on a token may be asked for in the name of somebody else.
_NAMES_REQUESTER = 3


def handle_create_token(
    server: Frontend, context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """Refuse a token to somebody who has not authenticated."""
    kind, name = context.connection.principal
    owner_kind, owner = kind, name
    if request.owner_principal_name:
        owner_kind, owner = request.owner_principal_type or "", request.owner_principal_name
    names_requester = context.version >= _NAMES_REQUESTER
    return CreateDelegationTokenResponse(
        error_code=_NOT_ALLOWED,
        principal_type=owner_kind,
        principal_name=owner,
        token_requester_principal_type=kind if names_requester else "",
        token_requester_principal_name=name if names_requester else "",
        issue_timestamp_ms=_NO_TIME,
        expiry_timestamp_ms=_NO_TIME,
        max_timestamp_ms=_NO_TIME,
    )


def handle_renew_token(
    server: Frontend, context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """Refuse it to somebody who has not authenticated."""
    return RenewDelegationTokenResponse(error_code=_NOT_ALLOWED, expiry_timestamp_ms=_NO_TIME)


def handle_expire_token(
    server: Frontend, context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """Refuse it to somebody who has not authenticated."""
    return ExpireDelegationTokenResponse(error_code=_NOT_ALLOWED, expiry_timestamp_ms=_NO_TIME)


def handle_describe_token(
    server: Frontend, context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """Refuse it to somebody who has not authenticated."""
    return DescribeDelegationTokenResponse(error_code=_NOT_ALLOWED)


def handle_describe_client_quotas(
    server: Frontend, context: RequestContext, request: DescribeClientQuotasRequest
) -> PlainSteps[DescribeClientQuotasResponse]:
    """Return the quotas in the metadata log."""
    try:
        return (yield from security_queries.describe_client_quotas(server.image, request))
    except KafkaError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=str(error.args[0]), entries=None
        )


async def handle_alter_client_quotas(
    server: Frontend, context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """Set and remove quotas."""
    return await server.ask_controller(context, request, AlterClientQuotasResponse)


def handle_describe_user_scram_credentials(
    server: Frontend, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> PlainSteps[DescribeUserScramCredentialsResponse]:
    """Return which users have passwords in the metadata log."""
    return security_queries.describe_user_scram_credentials(server.image, request)


HANDLERS: tuple[tuple[ApiKey, Handler], ...] = (
    serves(ApiKey.CREATE_DELEGATION_TOKEN, handle_create_token),
    serves(ApiKey.RENEW_DELEGATION_TOKEN, handle_renew_token),
    serves(ApiKey.EXPIRE_DELEGATION_TOKEN, handle_expire_token),
    serves(ApiKey.DESCRIBE_DELEGATION_TOKEN, handle_describe_token),
    serves(ApiKey.DESCRIBE_CLIENT_QUOTAS, handle_describe_client_quotas),
    serves(ApiKey.ALTER_CLIENT_QUOTAS, handle_alter_client_quotas),
    serves(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, handle_describe_user_scram_credentials),
)
