import java.util.List;
import java.util.Map;

import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/**
 * Arguments: bootstrap, topic, group. Commits so much that the log of the group has segments to
 * compact.
 */
public final class CommitOften {
    private static final int COMMITS = 600;

    public static void main(String[] args) {
        TopicPartition partition = new TopicPartition(args[1], 0);
        try (KafkaConsumer<String, String> consumer =
                Kit.consumer(args[0], "group.id", args[2], "enable.auto.commit", "false")) {
            consumer.assign(List.of(partition));
            for (int offset = 0; offset < COMMITS; offset++) {
                String metadata = offset + " ".repeat(4000) + offset;
                consumer.commitSync(Map.of(partition, new OffsetAndMetadata(offset, metadata)));
            }
        }
    }
}
