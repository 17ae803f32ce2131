import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;

import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Arguments: bootstrap, topic with four partitions, group, group protocol. Members come and go;
 * what one has committed the next begins with;
 * a static member comes back as the one it was.
 */
public final class Rebalance {
    private static String bootstrap;
    private static String topic;
    private static String group;
    private static String protocol;

    private static final class Member implements ConsumerRebalanceListener, AutoCloseable {
        final KafkaConsumer<String, String> consumer;
        final List<String> values = new ArrayList<>();
        int revocations;

        Member(String... more) {
            List<String> pairs = new ArrayList<>(List.of(
                "group.id", group, "group.protocol", protocol, "auto.offset.reset", "earliest",
                "enable.auto.commit", "false"));
            pairs.addAll(List.of(more));
            consumer = Kit.consumer(bootstrap, pairs.toArray(new String[0]));
            consumer.subscribe(List.of(topic), this);
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            if (!partitions.isEmpty()) {
                revocations++;
                consumer.commitSync();
            }
        }

        void poll() {
            consumer.poll(Kit.POLL).forEach(record -> values.add(record.value()));
        }

        @Override
        public void close() {
            consumer.close();
        }
    }

    private static void settle(List<Member> members, int... sizes) {
        Kit.until(() -> {
            members.forEach(Member::poll);
            Set<TopicPartition> all = new TreeSet<>(
                (a, b) -> Integer.compare(a.partition(), b.partition()));
            for (int each = 0; each < sizes.length; each++) {
                if (members.get(each).consumer.assignment().size() != sizes[each]) {
                    return false;
                }
                all.addAll(members.get(each).consumer.assignment());
            }
            return all.size() == 4;
        });
        Kit.say("settled", members.stream()
            .map(member -> member.consumer.assignment().size()).collect(Collectors.toList()));
    }

    private static void write(int round) {
        try (KafkaProducer<String, String> producer = Kit.producer(bootstrap)) {
            for (int number = 0; number < 40; number++) {
                producer.send(new ProducerRecord<>(
                    topic, number % 4, "key", "round " + round + " record " + number));
            }
        }
    }

    public static void main(String[] args) {
        bootstrap = args[0];
        topic = args[1];
        group = args[2];
        protocol = args[3];
        write(1);
        Set<String> seen = new TreeSet<>();
        int deliveries = 0;
        try (Member first = new Member()) {
            settle(List.of(first), 4);
            Kit.until(() -> {
                first.poll();
                return first.values.size() >= 40;
            });
            first.consumer.commitSync();
            try (Member second = new Member()) {
                settle(List.of(first, second), 2, 2);
                write(2);
                Kit.until(() -> {
                    first.poll();
                    second.poll();
                    return first.values.size() + second.values.size() >= 80;
                });
                second.consumer.commitSync();
                Kit.say("the second has read", second.values.size());
                seen.addAll(second.values);
                deliveries += second.values.size();
                second.consumer.unsubscribe();
                settle(List.of(first), 4);
            }
            first.consumer.commitSync();
            seen.addAll(first.values);
            deliveries += first.values.size();
            Kit.say("revoked", first.revocations > 0);
        }
        Kit.say("seen", seen.size(), "of", deliveries);
        String instance = group + ".instance";
        try (Member third = new Member("group.instance.id", instance)) {
            settle(List.of(third), 4);
        }
        try (Member third = new Member("group.instance.id", instance)) {
            settle(List.of(third), 4);
            Map<Integer, Long> committed = new TreeMap<>();
            for (Map.Entry<TopicPartition, OffsetAndMetadata> entry :
                    third.consumer.committed(third.consumer.assignment()).entrySet()) {
                committed.put(entry.getKey().partition(), entry.getValue().offset());
            }
            Kit.say("committed", committed);
            Kit.say("read again", third.values.size());
        }
    }
}
