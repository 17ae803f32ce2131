"""The settings of the authorizer: who may do everything, and what nobody has been denied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from dohle.core.config.definition import ConfigKey, ConfigType
from dohle.core.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from dohle.core.config.static import BrokerConfig

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CLASS_NAME: Final = "authorizer.class.name"
SUPER_USERS: Final = "super.users"
ALLOW_EVERYONE: Final = "allow.everyone.if.no.acl.found"

#: Settings of the authorizer, which are none of the node's: DescribeConfigs does not know them.
OF_AUTHORIZER: Final = frozenset({SUPER_USERS, ALLOW_EVERYONE})

AUTHORIZER_CONFIGS: Final = (
    ConfigKey(
        CLASS_NAME,
        ConfigType.STRING,
        "",
        f"Who decides what clients may do: {STANDARD_AUTHORIZER}, by ACLs, except that those of"
        f" {SUPER_USERS} may do everything. If it is empty, every client may do everything.",
    ),
)


class AuthorizerSettings(NamedTuple):
    """What the authorizer is told by the configuration."""

    super_users: frozenset[str]
    allow_everyone: bool


def authorizer_settings(config: BrokerConfig) -> AuthorizerSettings | None:
    """Return the settings of the authorizer; None if there is none."""
    name = config.get_str(CLASS_NAME).strip()
    if not name:
        return None
    if name != STANDARD_AUTHORIZER:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{CLASS_NAME} can be empty or {STANDARD_AUTHORIZER}, and it is {name}: other classes"
            " of Java cannot be loaded",
        )
    # Names of certificates have commas in them.
    users = (text.strip() for text in (config.text(SUPER_USERS) or "").split(";"))
    super_users = frozenset(user for user in users if user)
    for user in super_users:
        if ":" not in user:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{SUPER_USERS}: {user} is not a principal, which is written like User:{user}",
            )
    allow_everyone = (config.text(ALLOW_EVERYONE) or "").strip().lower() == "true"
    return AuthorizerSettings(super_users, allow_everyone)
