"""The parts of the admin client, each loaded when a command asks for it.

All of it takes a tenth of a second of processor time to load, mostly for the classes of results; a
command that needs one part starts in half of the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dohle.client.admin.acls import AclAdmin
    from dohle.client.admin.admin import Admin
    from dohle.client.admin.cluster import ClusterAdmin
    from dohle.client.admin.configs import ConfigAdmin
    from dohle.client.admin.groups import GroupAdmin
    from dohle.client.admin.logs import LogAdmin
    from dohle.client.admin.quotas import QuotaAdmin
    from dohle.client.admin.topics import TopicAdmin
    from dohle.client.admin.transactions import TransactionAdmin
    from dohle.client.admin.users import UserAdmin


def whole() -> type[Admin]:
    """All parts."""
    from dohle.client.admin.admin import Admin

    return Admin


def topics() -> type[TopicAdmin]:
    """Topics, partitions and offsets."""
    from dohle.client.admin.topics import TopicAdmin

    return TopicAdmin


def logs() -> type[LogAdmin]:
    """Log directories and records."""
    from dohle.client.admin.logs import LogAdmin

    return LogAdmin


def cluster() -> type[ClusterAdmin]:
    """The cluster, its quorum and its features."""
    from dohle.client.admin.cluster import ClusterAdmin

    return ClusterAdmin


def configs() -> type[ConfigAdmin]:
    """Configs."""
    from dohle.client.admin.configs import ConfigAdmin

    return ConfigAdmin


def groups() -> type[GroupAdmin]:
    """Groups."""
    from dohle.client.admin.groups import GroupAdmin

    return GroupAdmin


def transactions() -> type[TransactionAdmin]:
    """Transactions."""
    from dohle.client.admin.transactions import TransactionAdmin

    return TransactionAdmin


def acls() -> type[AclAdmin]:
    """ACLs."""
    from dohle.client.admin.acls import AclAdmin

    return AclAdmin


def quotas() -> type[QuotaAdmin]:
    """Quotas."""
    from dohle.client.admin.quotas import QuotaAdmin

    return QuotaAdmin


def users() -> type[UserAdmin]:
    """Users with passwords."""
    from dohle.client.admin.users import UserAdmin

    return UserAdmin
