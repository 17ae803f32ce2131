import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** Arguments: bootstrap, a name nobody has used. Calls of the admin client and their answers. */
public final class AdminCalls {
    private static final long TIME = 1_700_000_000_000L;

    private final Admin admin;
    private final String bootstrap;
    private final String name;
    private final ConfigResource resource;

    private AdminCalls(Admin admin, String bootstrap, String name) {
        this.admin = admin;
        this.bootstrap = bootstrap;
        this.name = name;
        this.resource = new ConfigResource(ConfigResource.Type.TOPIC, name);
    }

    private void topics() throws Exception {
        NewTopic topic = new NewTopic(name, Optional.of(2), Optional.empty())
            .configs(Map.of("retention.ms", "100000000"));
        CreateTopicsResult dry = admin.createTopics(
            List.of(topic), new CreateTopicsOptions().validateOnly(true));
        Kit.say("dry run", dry.numPartitions(name).get(), dry.replicationFactor(name).get());
        Kit.say("there", admin.listTopics().names().get().contains(name));
        CreateTopicsResult created = admin.createTopics(List.of(topic));
        Kit.say("created", created.numPartitions(name).get(), created.replicationFactor(name).get(),
            created.config(name).get().get("retention.ms").value());
        Kit.sayThrown("again:", () -> admin.createTopics(List.of(topic)).all().get());
        Kit.sayThrown("bad name:", () -> admin.createTopics(
            List.of(new NewTopic("a/b", 1, (short) 1))).all().get());
        Kit.sayThrown("too many replicas:", () -> admin.createTopics(
            List.of(new NewTopic(name + ".other", 1, (short) 3))).all().get());
        Kit.sayThrown("no partitions:", () -> admin.createTopics(
            List.of(new NewTopic(name + ".other", 0, (short) 1))).all().get());
        Kit.sayThrown("bad config:", () -> admin.createTopics(List.of(
            new NewTopic(name + ".other", 1, (short) 1)
                .configs(Map.of("retention.ms", "long")))).all().get());
        Kit.sayThrown("unknown config:", () -> admin.createTopics(List.of(
            new NewTopic(name + ".other", 1, (short) 1)
                .configs(Map.of("no.such.config", "1")))).all().get());
        admin.createPartitions(Map.of(name, NewPartitions.increaseTo(3))).all().get();
        Kit.sayThrown("fewer partitions:", () -> admin.createPartitions(
            Map.of(name, NewPartitions.increaseTo(1))).all().get());
        Kit.until(() -> partitions() == 3);
        TopicDescription description = admin.describeTopics(List.of(name)).allTopicNames().get().get(name);
        Kit.say("partitions", description.partitions().size(), description.isInternal());
        Uuid id = description.topicId();
        Kit.say("by id", admin.describeTopics(TopicCollection.ofTopicIds(List.of(id)))
            .allTopicIds().get().get(id).name().equals(name));
        Kit.sayThrown("unknown topic:", () -> admin.describeTopics(
            List.of(name + ".none")).allTopicNames().get());
        Kit.sayThrown("unknown id:", () -> admin.describeTopics(
            TopicCollection.ofTopicIds(List.of(Uuid.randomUuid()))).allTopicIds().get());
    }

    /** How many the broker knows of: it hears of a change after the controller. */
    private int partitions() throws Exception {
        try {
            return admin.describeTopics(List.of(name)).allTopicNames().get().get(name)
                .partitions().size();
        } catch (ExecutionException error) {
            if (error.getCause() instanceof UnknownTopicOrPartitionException) {
                return 0;
            }
            throw error;
        }
    }

    private ConfigEntry config(String config) throws Exception {
        return admin.describeConfigs(List.of(resource)).all().get().get(resource).get(config);
    }

    private void alter(String config, String value, AlterConfigOp.OpType type, String then)
            throws Exception {
        admin.incrementalAlterConfigs(Map.of(resource, List.of(
            new AlterConfigOp(new ConfigEntry(config, value), type)))).all().get();
        Kit.until(() -> config(config).value().equals(then));
        Kit.say(config, type, config(config).value(), config(config).source());
    }

    private void configs() throws Exception {
        alter("retention.ms", "5000", AlterConfigOp.OpType.SET, "5000");
        alter("retention.ms", null, AlterConfigOp.OpType.DELETE, "604800000");
        alter("cleanup.policy", "compact", AlterConfigOp.OpType.APPEND, "delete,compact");
        alter("cleanup.policy", "compact", AlterConfigOp.OpType.SUBTRACT, "delete");
        Kit.sayThrown("bad value:", () -> {
            alter("retention.ms", "-7", AlterConfigOp.OpType.SET, "-7");
            return null;
        });
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        Config config = admin.describeConfigs(List.of(broker)).all().get().get(broker);
        Kit.say("broker", config.get("node.id").value(), config.get("num.partitions").value(),
            config.get("node.id").isReadOnly());
        Kit.sayThrown("unknown topic's configs:", () -> admin.describeConfigs(List.of(
            new ConfigResource(ConfigResource.Type.TOPIC, name + ".none"))).all().get());
    }

    private void sayOffset(String what, OffsetSpec spec) throws Exception {
        TopicPartition partition = new TopicPartition(name, 0);
        ListOffsetsResultInfo info =
            admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get();
        Kit.say(what, info.offset(), info.timestamp(), info.leaderEpoch());
    }

    private void records() throws Exception {
        try (KafkaProducer<String, String> producer = Kit.producer(bootstrap)) {
            for (int number = 0; number < 10; number++) {
                long time = TIME + (number == 4 ? 1000 : number);
                producer.send(new ProducerRecord<>(name, 0, time, "key", "value")).get();
            }
        }
        sayOffset("earliest", OffsetSpec.earliest());
        sayOffset("latest", OffsetSpec.latest());
        sayOffset("max timestamp", OffsetSpec.maxTimestamp());
        sayOffset("by time", OffsetSpec.forTimestamp(TIME + 3));
        sayOffset("by late time", OffsetSpec.forTimestamp(TIME + 5000));
        sayOffset("earliest local", OffsetSpec.earliestLocal());
        sayOffset("latest tiered", OffsetSpec.latestTiered());
        TopicPartition partition = new TopicPartition(name, 0);
        Kit.say("deleted below", admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(4)))
            .lowWatermarks().get(partition).get().lowWatermark());
        Kit.sayThrown("delete beyond the end:", () -> admin.deleteRecords(
            Map.of(partition, RecordsToDelete.beforeOffset(400))).all().get());
        sayOffset("earliest", OffsetSpec.earliest());
        Kit.say("size", admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).values()
            .iterator().next().replicaInfos().get(partition).size() > 0);
    }

    private void groups() throws Exception {
        String group = name + ".group";
        TopicPartition zero = new TopicPartition(name, 0);
        TopicPartition one = new TopicPartition(name, 1);
        Kit.sayThrown("unknown group:", () -> admin.describeConsumerGroups(List.of(group)).all().get());
        Kit.sayThrown("delete unknown group:", () -> admin.deleteConsumerGroups(List.of(group)).all().get());
        admin.alterConsumerGroupOffsets(group, Map.of(
            zero, new OffsetAndMetadata(7, Optional.of(0), "seven"),
            one, new OffsetAndMetadata(0))).all().get();
        Kit.say("state", admin.describeConsumerGroups(List.of(group)).all().get().get(group).groupState());
        Map<String, String> offsets = new TreeMap<>();
        admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().forEach(
            (partition, offset) -> offsets.put(
                "" + partition.partition(), offset.offset() + "/" + offset.metadata()));
        Kit.say("offsets", offsets);
        admin.deleteConsumerGroupOffsets(group, Set.of(one)).all().get();
        Kit.say("left", admin.listConsumerGroupOffsets(group)
            .partitionsToOffsetAndMetadata().get().keySet().size());
        Collection<String> listed = new ArrayList<>();
        admin.listGroups().all().get().forEach(listing -> {
            if (listing.groupId().equals(group)) {
                listed.add(listing.type().get() + "/" + listing.groupState().get());
            }
        });
        Kit.say("listed", listed);
        admin.deleteConsumerGroups(List.of(group)).all().get();
        Kit.say("offsets of the deleted", admin.listConsumerGroupOffsets(group)
            .partitionsToOffsetAndMetadata().get());
    }

    private void transactions() throws Exception {
        String id = name + ".id";
        Kit.sayThrown("unknown id:", () -> admin.describeTransactions(List.of(id)).all().get());
        try (KafkaProducer<String, String> producer = Kit.producer(bootstrap, "transactional.id", id)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(name, 1, "key", "value")).get();
            TopicPartition partition = new TopicPartition(name, 1);
            var description = admin.describeTransactions(List.of(id)).description(id).get();
            Kit.say("open", description.state(), description.topicPartitions().size(),
                description.transactionTimeoutMs());
            var states = admin.describeProducers(List.of(partition)).partitionResult(partition).get()
                .activeProducers();
            Kit.say("producers", states.size(),
                states.get(0).producerId() == description.producerId(),
                states.get(0).producerEpoch() == description.producerEpoch(),
                states.get(0).lastSequence(), states.get(0).currentTransactionStartOffset());
            Kit.say("listed", admin.listTransactions().all().get().stream()
                .filter(listing -> listing.transactionalId().equals(id))
                .map(listing -> listing.state()).toList());
            admin.fenceProducers(List.of(id)).all().get();
            Kit.sayThrown("fenced:", () -> {
                producer.commitTransaction();
                return null;
            });
        }
    }

    private void cluster() throws Exception {
        var nodes = admin.describeCluster().nodes().get();
        Kit.say("nodes", nodes.size(), nodes.iterator().next().id(),
            admin.describeCluster().controller().get().id(),
            admin.describeCluster().clusterId().get().length());
        QuorumInfo quorum = admin.describeMetadataQuorum().quorumInfo().get();
        Kit.say("quorum", quorum.leaderId(), quorum.voters().size(), quorum.observers().size(),
            quorum.highWatermark() > 0);
        var features = admin.describeFeatures().featureMetadata().get().finalizedFeatures();
        for (String feature : List.of("group.version", "metadata.version", "transaction.version")) {
            Kit.say(feature, features.get(feature).maxVersionLevel());
        }
    }

    public static void main(String[] args) throws Exception {
        try (Admin admin = Admin.create(Kit.properties(args[0]))) {
            AdminCalls calls = new AdminCalls(admin, args[0], args[1]);
            calls.topics();
            calls.configs();
            calls.records();
            calls.groups();
            calls.transactions();
            calls.cluster();
            admin.deleteTopics(List.of(args[1])).all().get();
            Kit.sayThrown("deleted:", () -> admin.deleteTopics(List.of(args[1])).all().get());
        }
    }
}
