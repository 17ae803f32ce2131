"""An authorizer on every node of a cluster: nodes reach each other, and all know the same ACLs."""

from __future__ import annotations

from time import monotonic

from dohle.client import Admin, NewTopic, run
from dohle.client import Cluster as Client
from dohle.core.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from dohle.core.config.authorizer import STANDARD_AUTHORIZER
from dohle.testing.cluster import Cluster

_DEADLINE_S = 60.0
_ACL = Acl(
    AclResourceType.TOPIC,
    "orders",
    PatternType.LITERAL,
    "User:alice",
    "*",
    AclOperation.READ,
    AclPermission.ALLOW,
)
_ALL = AclFilter(
    AclResourceType.ANY, None, PatternType.ANY, None, None, AclOperation.ANY, AclPermission.ANY
)


def test_nodes_that_are_super_users_form_a_cluster_whose_acls_all_of_them_know() -> None:
    """Section 7: the nodes' own principal is in super.users; ACLs are the controller's to decide.

    The topic has replicas on all nodes: followers and raft fetches go through the guards.
    """
    config = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}

    async def scenario(cluster: Cluster) -> None:
        async with Client(cluster.bootstrap) as client:
            admin = Admin(client)
            made = await admin.create_topics(
                [NewTopic("orders", partitions=3, replication_factor=3)]
            )
            made.ok()
            (await admin.create_acls([_ACL])).ok()
        end = monotonic() + _DEADLINE_S
        for address in cluster.bootstrap.split(","):
            async with Client(address) as client:
                while await Admin(client).describe_acls(_ALL) != (_ACL,):
                    assert monotonic() < end, "a node does not know the ACL"
        async with Client(cluster.bootstrap) as client:
            (removed,) = (await Admin(client).delete_acls([_ALL])).done.values()
            assert removed == (_ACL,)

    with Cluster(nodes=3, config=config) as cluster:
        run(scenario(cluster))
