"""The admin client: all that can be administered, each part in a module of its own.

An operation on several things has a result for each: one bad name does not affect the rest.
Requests for the controller go to the broker that metadata names as such, and to another one if that
was wrong; requests about one broker or partition go to that broker or the partition's leader.

A program that needs one part only can use that, and loads quicker: commands do.
"""

from __future__ import annotations

from dohle.client.admin.acls import AclAdmin
from dohle.client.admin.cluster import ClusterAdmin
from dohle.client.admin.configs import ConfigAdmin
from dohle.client.admin.groups import GroupAdmin
from dohle.client.admin.logs import LogAdmin
from dohle.client.admin.quotas import QuotaAdmin
from dohle.client.admin.reassignments import ReassignmentAdmin
from dohle.client.admin.topics import TopicAdmin
from dohle.client.admin.transactions import TransactionAdmin
from dohle.client.admin.users import UserAdmin


class Admin(
    TopicAdmin,
    LogAdmin,
    ClusterAdmin,
    ReassignmentAdmin,
    ConfigAdmin,
    GroupAdmin,
    TransactionAdmin,
    AclAdmin,
    QuotaAdmin,
    UserAdmin,
):
    """Changes and describes the cluster."""
