import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** What the mains of this folder share: clients of strings, and words for what they saw. */
final class Kit {
    static final Duration POLL = Duration.ofMillis(50);
    private static final long DEADLINE_MS = 30_000;

    private Kit() {
    }

    static Properties properties(String bootstrap, String... pairs) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        for (int each = 0; each < pairs.length; each += 2) {
            properties.put(pairs[each], pairs[each + 1]);
        }
        return properties;
    }

    static KafkaProducer<String, String> producer(String bootstrap, String... pairs) {
        return new KafkaProducer<>(
            properties(bootstrap, pairs), new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(String bootstrap, String... pairs) {
        return new KafkaConsumer<>(
            properties(bootstrap, pairs), new StringDeserializer(), new StringDeserializer());
    }

    /** Reads all partitions of a topic to the end that the isolation level allows to see. */
    static List<ConsumerRecord<String, String>> readAll(
            String bootstrap, String topic, String isolation) {
        try (KafkaConsumer<String, String> consumer =
                consumer(bootstrap, "isolation.level", isolation, "fetch.max.wait.ms", "20")) {
            List<TopicPartition> partitions = new ArrayList<>();
            consumer.partitionsFor(topic).forEach(
                info -> partitions.add(new TopicPartition(topic, info.partition())));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            List<ConsumerRecord<String, String>> records = new ArrayList<>();
            until(() -> {
                consumer.poll(POLL).forEach(records::add);
                return partitions.stream().allMatch(
                    each -> consumer.position(each) >= ends.get(each));
            });
            records.sort(Comparator.<ConsumerRecord<String, String>>comparingInt(
                ConsumerRecord::partition).thenComparingLong(ConsumerRecord::offset));
            return records;
        }
    }

    static void until(Callable<Boolean> condition) {
        long deadline = System.currentTimeMillis() + DEADLINE_MS;
        try {
            while (!condition.call()) {
                if (System.currentTimeMillis() > deadline) {
                    throw new AssertionError("it did not happen in time");
                }
            }
        } catch (RuntimeException error) {
            throw error;
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    static void say(Object... words) {
        StringBuilder line = new StringBuilder();
        for (Object word : words) {
            line.append(line.length() == 0 ? "" : " ").append(word);
        }
        System.out.println(line);
    }

    static void say(ConsumerRecord<String, String> record, Object... before) {
        StringBuilder headers = new StringBuilder();
        for (Header header : record.headers()) {
            String value = header.value() == null
                ? "null" : new String(header.value(), StandardCharsets.UTF_8);
            headers.append(' ').append(header.key()).append('=').append(value);
        }
        StringBuilder prefix = new StringBuilder();
        for (Object word : before) {
            prefix.append(word).append(' ');
        }
        System.out.println(prefix.toString() + record.partition() + "@" + record.offset() + " "
            + record.key() + "=" + record.value() + headers);
    }

    /** Says the simple name of what is thrown, or "none". */
    static void sayThrown(String what, Callable<?> call) {
        try {
            call.call();
            say(what, "none");
        } catch (ExecutionException error) {
            say(what, error.getCause().getClass().getSimpleName());
        } catch (Exception error) {
            say(what, error.getClass().getSimpleName());
        }
    }
}
