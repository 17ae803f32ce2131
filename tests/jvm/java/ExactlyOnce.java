import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Arguments: bootstrap, input, output, group, group protocol. Consume, transform, produce; the
 * first attempt is aborted, so that its input must come again.
 */
public final class ExactlyOnce {
    private static final int RECORDS = 20;

    private static List<ConsumerRecord<String, String>> poll(
            KafkaConsumer<String, String> consumer, int number) {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        Kit.until(() -> {
            consumer.poll(Kit.POLL).forEach(records::add);
            return records.size() >= number;
        });
        return records;
    }

    private static void transform(
            KafkaConsumer<String, String> consumer, KafkaProducer<String, String> producer,
            String output, List<ConsumerRecord<String, String>> records) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (ConsumerRecord<String, String> record : records) {
            producer.send(new ProducerRecord<>(
                output, 0, record.key(), record.value().toUpperCase(Locale.ROOT)));
            offsets.put(
                new TopicPartition(record.topic(), record.partition()),
                new OffsetAndMetadata(record.offset() + 1, "by the transaction"));
        }
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
    }

    public static void main(String[] args) {
        String bootstrap = args[0];
        String input = args[1];
        String output = args[2];
        String group = args[3];
        try (KafkaProducer<String, String> producer = Kit.producer(bootstrap)) {
            for (int number = 0; number < RECORDS; number++) {
                producer.send(new ProducerRecord<>(input, 0, "key", "word " + number));
            }
        }
        TopicPartition partition = new TopicPartition(input, 0);
        try (KafkaConsumer<String, String> consumer = Kit.consumer(
                    bootstrap, "group.id", group, "group.protocol", args[4],
                    "auto.offset.reset", "earliest", "enable.auto.commit", "false",
                    "isolation.level", "read_committed");
                KafkaProducer<String, String> producer =
                    Kit.producer(bootstrap, "transactional.id", group + ".transactions")) {
            consumer.subscribe(List.of(input));
            producer.initTransactions();
            List<ConsumerRecord<String, String>> records = poll(consumer, RECORDS);
            producer.beginTransaction();
            transform(consumer, producer, output, records);
            producer.flush();
            producer.abortTransaction();
            Kit.say("after the abort", consumer.committed(Set.of(partition)).get(partition));
            consumer.seekToBeginning(consumer.assignment());
            records = poll(consumer, RECORDS);
            producer.beginTransaction();
            transform(consumer, producer, output, records);
            producer.commitTransaction();
            OffsetAndMetadata committed = consumer.committed(Set.of(partition)).get(partition);
            Kit.say("after the commit", committed.offset(), committed.metadata());
        }
        Kit.readAll(bootstrap, output, "read_committed").forEach(record -> Kit.say(record));
    }
}
