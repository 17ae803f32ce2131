"""Commands in any order: whatever they decide, replaying it keeps the cluster whole."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dohle.core.ids import BrokerId, TopicName
from dohle.core.steps import finish
from dohle.metadata.alter_partition import alter_partition
from dohle.metadata.brokers import (
    begin_controlled_shutdown,
    fence_broker,
    unfence_broker,
    unregister_broker,
)
from dohle.metadata.configs import incremental_alter_configs
from dohle.metadata.delta import difference
from dohle.metadata.image import EMPTY_IMAGE
from dohle.metadata.leader_elections import (
    balance_leaders,
    elect_leaders,
    elect_unclean_leaders,
)
from dohle.metadata.producer_ids import allocate_producer_ids
from dohle.metadata.reassignments import alter_partition_reassignments
from dohle.metadata.replay import apply
from dohle.metadata.snapshot import snapshot_records
from dohle.metadata.topic_changes import create_partitions, delete_topics
from dohle.metadata.topic_names import collision_key
from dohle.metadata.topics import create_topics
from dohle.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from dohle.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from dohle.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from dohle.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from dohle.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from dohle.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from dohle.protocol.messages.elect_leaders import ElectLeadersRequest
from dohle.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from dohle.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.metadata.cluster import Cluster, context, registration

NAMES = st.sampled_from([TopicName(name) for name in ("a", "b", "c.d", "c_d", "e.f", "bad name")])
BROKERS = st.integers(1, 4)


class ControllerModel(RuleBasedStateMachine):
    """The rules are commands; the invariants are what must hold after any of them."""

    @initialize(level=st.sampled_from((11, 17, 29)), elr=st.booleans(), seed=st.integers(0, 9))
    def start(self, level: int, elr: bool, seed: int) -> None:
        self.cluster = Cluster(context(seed=seed))
        self.cluster.bootstrap(level, elr=elr)
        self.incarnation = 1
        self.producer_ids: set[int] = set()
        for broker_id in (1, 2, 3):
            self.cluster.start_broker(broker_id)
        self.cluster.create_topic("a", 3, 3)
        self.cluster.create_topic("c.d", 2, 2)

    @rule(broker_id=BROKERS, rack=st.sampled_from((None, "x", "y")), catches_up=st.booleans())
    def broker_registers(self, broker_id: int, rack: str | None, catches_up: bool) -> None:
        self.incarnation += 1
        request = registration(broker_id, incarnation=self.incarnation, rack=rack)
        assert self.cluster.register(request).error_code == 0
        assert self.cluster.image.brokers[BrokerId(broker_id)].fenced
        if catches_up:
            self.broker_changes(broker_id, "unfence")

    @rule(broker_id=BROKERS, step=st.sampled_from(("unfence", "unfence", "fence", "shut down")))
    def broker_changes(self, broker_id: int, step: str) -> None:
        made = self.cluster
        broker = made.image.broker(broker_id)
        if broker is None:
            return
        if step == "unfence":
            made.write(unfence_broker(made.image, broker_id, made.context))
        elif step == "fence":
            made.write(fence_broker(made.image, broker_id, made.context))
        elif not broker.fenced:
            made.write(begin_controlled_shutdown(made.image, broker_id, made.context))

    @rule(broker_id=st.integers(2, 4))
    def broker_unregisters(self, broker_id: int) -> None:
        made = self.cluster
        if any(
            broker_id in partition.replicas
            for topic in made.image.topics.values()
            for partition in topic.partitions.values()
        ):
            return
        request = UnregisterBrokerRequest(broker_id=BrokerId(broker_id))
        made.commit(unregister_broker(made.image, request, made.context))

    @rule(
        wanted=st.lists(
            st.tuples(NAMES, st.sampled_from((1, 3, -1, 0)), st.sampled_from((1, 2, 3, -1))),
            min_size=1,
            max_size=3,
        ),
        validate_only=st.booleans(),
    )
    def topics_are_created(
        self, wanted: list[tuple[TopicName, int, int]], validate_only: bool
    ) -> None:
        made = self.cluster
        before = made.image
        request = CreateTopicsRequest(
            topics=tuple(
                CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor)
                for name, partitions, factor in wanted
            ),
            validate_only=validate_only,
        )
        reply = made.commit(create_topics(made.image, request, made.context))
        assert {result.name for result in reply.topics} == {name for name, _, _ in wanted}
        for result in reply.topics:
            if result.error_code == 0 and not validate_only:
                assert made.image.topics[result.name].id == result.topic_id
        if validate_only:
            assert made.image is before

    @rule(name=NAMES, more=st.integers(0, 3))
    def partitions_are_created(self, name: TopicName, more: int) -> None:
        made = self.cluster
        topic = made.image.topic(name)
        count = (0 if topic is None else len(topic.partitions)) + more
        wanted = CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=(wanted,))
        reply = made.commit(create_partitions(made.image, request, made.context))
        if reply.results[0].error_code == 0:
            assert len(made.image.topics[name].partitions) == count

    @rule(names=st.lists(NAMES, min_size=1, max_size=2), by_id=st.booleans())
    def topics_are_deleted(self, names: list[TopicName], by_id: bool) -> None:
        made = self.cluster
        wanted = []
        for name in names:
            topic = made.image.topic(name)
            if by_id and topic is not None:
                wanted.append(DeleteTopicState(topic_id=topic.id))
            else:
                wanted.append(DeleteTopicState(name=name))
        request = DeleteTopicsRequest(topics=tuple(wanted))
        reply = made.commit(delete_topics(made.image, request, made.context, version=6))
        for result in reply.responses:
            if result.error_code == 0 and result.name is not None:
                assert made.image.topic(result.name) is None

    @rule(
        type_=st.sampled_from((2, 4)),
        name=st.sampled_from(("a", "b", "", "1")),
        config=st.sampled_from(("retention.ms", "min.insync.replicas", "log.retention.ms")),
        operation=st.integers(0, 3),
        value=st.sampled_from(("1", "2")),
    )
    def configs_are_altered(
        self, type_: int, name: str, config: str, operation: int, value: str
    ) -> None:
        made = self.cluster
        resource = AlterConfigsResource(
            resource_type=type_,
            resource_name=name,
            configs=(AlterableConfig(name=config, config_operation=operation, value=value),),
        )
        request = IncrementalAlterConfigsRequest(resources=(resource,))
        made.commit(incremental_alter_configs(made.image, request, made.context))

    @rule(name=NAMES, isr=st.sets(BROKERS), from_a_leader=st.booleans())
    def a_leader_asks_for_another_isr(
        self, name: TopicName, isr: set[int], from_a_leader: bool
    ) -> None:
        made = self.cluster
        topic = made.image.topic(name)
        if topic is None:
            return
        before = topic.partitions[0]
        sender = made.image.broker(before.leader if from_a_leader else 1)
        if sender is None:
            return
        data = AlterPartitionRequestPartitionData(
            partition_index=0,
            leader_epoch=before.leader_epoch,
            new_isr_with_epochs=tuple(
                BrokerState(broker_id=BrokerId(each)) for each in sorted(isr | {before.leader})
            ),
            partition_epoch=before.partition_epoch,
        )
        wanted = AlterPartitionRequestTopicData(topic_id=topic.id, partitions=(data,))
        request = AlterPartitionRequest(
            broker_id=sender.id, broker_epoch=sender.epoch, topics=(wanted,)
        )
        reply = made.commit(alter_partition(made.image, request, made.context, version=3))
        (answer,) = reply.topics[0].partitions
        after = made.topic(name).partitions[0]
        if answer.error_code == 0:
            told = (answer.isr, answer.leader_epoch, answer.partition_epoch)
            assert told == (after.isr, after.leader_epoch, after.partition_epoch)
        assert (after.partition_epoch > before.partition_epoch) == (after != before)

    @rule(name=NAMES, replicas=st.lists(BROKERS, unique=True), ends=st.booleans())
    def partitions_are_reassigned(self, name: TopicName, replicas: list[int], ends: bool) -> None:
        made = self.cluster
        target = None if ends else tuple(map(BrokerId, replicas))
        wanted = ReassignablePartition(partition_index=0, replicas=target)
        topic = ReassignableTopic(name=name, partitions=(wanted,))
        request = AlterPartitionReassignmentsRequest(topics=(topic,))
        made.commit(alter_partition_reassignments(made.image, request, made.context))

    @rule(kind=st.sampled_from((0, 1)), by_itself=st.booleans())
    def leaders_are_elected(self, kind: int, by_itself: bool) -> None:
        made = self.cluster
        if by_itself:
            elect = elect_unclean_leaders if kind else balance_leaders
            made.write(finish(elect(made.image, made.context)).records)
        else:
            request = ElectLeadersRequest(election_type=kind, topic_partitions=None)
            made.commit(elect_leaders(made.image, request, made.context))

    @rule()
    def producer_ids_are_allocated(self) -> None:
        made = self.cluster
        request = AllocateProducerIdsRequest(
            broker_id=BrokerId(1), broker_epoch=made.image.brokers[BrokerId(1)].epoch
        )
        start = made.commit(allocate_producer_ids(made.image, request)).producer_id_start
        assert start not in self.producer_ids
        self.producer_ids.add(start)

    @invariant()
    def the_maps_of_topics_agree(self) -> None:
        image = self.cluster.image
        assert {topic.id: topic for topic in image.topics.values()} == image.topics_by_id
        assert all(name == topic.name for name, topic in image.topics.items())
        keys = [collision_key(name) for name in image.topics if collision_key(name)]
        assert sorted(filter(None, keys)) == list(image.colliding_names)

    @invariant()
    def partitions_are_sound(self) -> None:
        image = self.cluster.image
        for topic in image.topics.values():
            assert list(topic.partitions) == list(range(len(topic.partitions)))
            assert topic.partitions
            for partition in topic.partitions.values():
                replicas = set(partition.replicas)
                assert set(partition.adding_replicas) <= replicas
                assert set(partition.removing_replicas) <= replicas
                if partition.adding_replicas or partition.removing_replicas:
                    # C42: it is not complete, or it would have been completed.
                    assert not replicas - set(partition.removing_replicas) <= set(partition.isr)
                assert len(replicas) == len(partition.replicas) == len(partition.directories)
                assert set(partition.isr) <= replicas
                assert not set(partition.elr) & set(partition.isr)
                assert set(partition.elr) <= replicas
                assert partition.isr or image.is_elr_enabled
                if partition.leader != -1:
                    assert partition.leader in partition.isr
                    assert all(image.brokers[replica].is_active for replica in partition.isr)

    @invariant()
    def a_snapshot_gives_the_same_image(self) -> None:
        image = self.cluster.image
        records = [each.record for each in snapshot_records(image)]
        again, delta = apply(EMPTY_IMAGE, records, image.offset, image.epoch)
        assert again == image
        assert delta == difference(EMPTY_IMAGE, image)

    def teardown(self) -> None:
        """Replay what was written, by batch, all at once and one by one."""
        if not hasattr(self, "cluster"):
            return
        image = EMPTY_IMAGE
        for batch in self.cluster.batches:
            after, delta = apply(image, batch, image.offset + len(batch), 1)
            assert delta == difference(image, after)
            image = after
        records = [record for batch in self.cluster.batches for record in batch]
        at_once, _ = apply(EMPTY_IMAGE, records, len(records) - 1, 1)
        one_by_one = EMPTY_IMAGE
        for offset, record in enumerate(records):
            one_by_one, _ = apply(one_by_one, [record], offset, 1)
        assert image == at_once == one_by_one == self.cluster.image
        assert image.offset == at_once.offset == one_by_one.offset


TestControllerModel = ControllerModel.TestCase
TestControllerModel.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
