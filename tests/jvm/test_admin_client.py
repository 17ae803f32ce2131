"""The Java admin client."""

from __future__ import annotations

from tests.jvm.conftest import NewName
from tests.jvm.jvm import Jvm

_ANSWERS = """
dry run 2 1
there false
created 2 1 100000000
again: TopicExistsException
bad name: InvalidTopicException
too many replicas: InvalidReplicationFactorException
no partitions: InvalidPartitionsException
bad config: InvalidConfigurationException
unknown config: InvalidConfigurationException
fewer partitions: InvalidPartitionsException
partitions 3 false
by id true
unknown topic: UnknownTopicOrPartitionException
unknown id: UnknownTopicIdException
retention.ms SET 5000 DYNAMIC_TOPIC_CONFIG
retention.ms DELETE 604800000 DEFAULT_CONFIG
cleanup.policy APPEND delete,compact DYNAMIC_TOPIC_CONFIG
cleanup.policy SUBTRACT delete DYNAMIC_TOPIC_CONFIG
bad value: InvalidConfigurationException
broker 1 1 true
unknown topic's configs: UnknownTopicOrPartitionException
earliest 0 -1 Optional[0]
latest 10 -1 Optional[0]
max timestamp 4 1700000001000 Optional[0]
by time 3 1700000000003 Optional[0]
by late time -1 -1 Optional.empty
earliest local 0 -1 Optional[0]
latest tiered -1 -1 Optional.empty
deleted below 4
delete beyond the end: OffsetOutOfRangeException
earliest 4 -1 Optional[0]
size true
unknown group: GroupIdNotFoundException
delete unknown group: GroupIdNotFoundException
state Empty
offsets {0=7/seven, 1=0/}
left 1
listed [Classic/Empty]
offsets of the deleted {}
unknown id: TransactionalIdNotFoundException
open Ongoing 1 60000
producers 1 true true 0 OptionalLong[0]
listed [Ongoing]
fenced: ProducerFencedException
nodes 1 1 1 22
quorum 1 1 0 true
group.version 1
metadata.version 29
transaction.version 2
deleted: UnknownTopicOrPartitionException
"""


def test_the_admin_client_gets_kafkas_answers(jvm: Jvm, bootstrap: str, new_name: NewName) -> None:
    ran = jvm.run("AdminCalls", bootstrap, new_name("topic"))
    assert ran.code == 0, ran
    assert ran.lines == _ANSWERS.split("\n")[1:-1]
