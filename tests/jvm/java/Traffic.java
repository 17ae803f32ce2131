import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Arguments: bootstrap, topic, partitions. A producer that never stops, idempotent and with several
 * requests in flight, and a consumer behind it, which begins at offset 0 and may not go back there.
 * Records are numbered by partition. It says "send PARTITION NUMBER" before it sends, "ack
 * PARTITION NUMBER OFFSET" when it is told, and "read PARTITION NUMBER OFFSET". After a line of
 * input it stops sending, reads on to the end, and leaves; at the end of its input, at once.
 */
public final class Traffic {
    /** About a thousand records a second: the brokers have other things to do, too. */
    private static final int BURST_MAX = 4;
    private static final String FILLING = " " + "x".repeat(200);

    private final String bootstrap;
    private final String topic;
    private final long[] written;
    private final List<TopicPartition> partitions = new ArrayList<>();
    private final AtomicBoolean stopping = new AtomicBoolean();
    private final AtomicReference<Map<TopicPartition, Long>> ends = new AtomicReference<>();

    private Traffic(String bootstrap, String topic, int count) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        written = new long[count];
        for (int number = 0; number < count; number++) {
            partitions.add(new TopicPartition(topic, number));
        }
    }

    private void write() throws InterruptedException {
        Random random = new Random(1);
        try (KafkaProducer<String, String> producer = Kit.producer(
                bootstrap, "acks", "all", "enable.idempotence", "true", "linger.ms", "1",
                "compression.type", "lz4", "delivery.timeout.ms", "90000",
                "metadata.max.age.ms", "1000", "reconnect.backoff.max.ms", "100")) {
            // A leader that knows nothing of a producer takes any batch for its first.
            for (int partition = 0; partition < written.length; partition++) {
                send(producer, partition);
            }
            producer.flush();
            while (!stopping.get()) {
                for (int each = random.nextInt(BURST_MAX); each >= 0; each--) {
                    send(producer, random.nextInt(written.length));
                }
                Thread.sleep(2);
            }
        }
    }

    private void send(KafkaProducer<String, String> producer, int partition) {
        long number = written[partition]++;
        Kit.say("send", partition, number);
        producer.send(new ProducerRecord<>(topic, partition, null, number + FILLING),
            (where, error) -> {
                if (error != null) {
                    Kit.say("failed", partition, number, error);
                } else {
                    Kit.say("ack", partition, number, where.offset());
                }
            });
    }

    private void read() {
        try (KafkaConsumer<String, String> consumer = Kit.consumer(
                bootstrap, "auto.offset.reset", "none", "metadata.max.age.ms", "1000",
                "reconnect.backoff.max.ms", "100")) {
            consumer.assign(partitions);
            partitions.forEach(each -> consumer.seek(each, 0));
            while (!isThere(consumer)) {
                for (ConsumerRecord<String, String> record : consumer.poll(Kit.POLL)) {
                    String number = record.value().substring(0, record.value().indexOf(' '));
                    Kit.say("read", record.partition(), number, record.offset());
                }
            }
        }
    }

    private boolean isThere(KafkaConsumer<String, String> consumer) {
        Map<TopicPartition, Long> goal = ends.get();
        return goal != null && partitions.stream().allMatch(
            each -> consumer.position(each) >= goal.get(each));
    }

    private Map<TopicPartition, Long> findEnds() {
        try (KafkaConsumer<String, String> consumer = Kit.consumer(bootstrap)) {
            return consumer.endOffsets(partitions);
        }
    }

    private static Thread started(Runnable work) {
        Thread thread = new Thread(work);
        thread.setUncaughtExceptionHandler((ignored, error) -> {
            Kit.say("failed", error);
            Runtime.getRuntime().halt(1);
        });
        thread.start();
        return thread;
    }

    public static void main(String[] args) throws Exception {
        Traffic traffic = new Traffic(args[0], args[1], Integer.parseInt(args[2]));
        Thread writer = started(() -> {
            try {
                traffic.write();
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        });
        Thread reader = started(traffic::read);
        BufferedReader orders =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        if (orders.readLine() == null) {
            Runtime.getRuntime().halt(1);
        }
        traffic.stopping.set(true);
        writer.join();
        traffic.ends.set(traffic.findEnds());
        reader.join();
        Runtime.getRuntime().halt(0);
    }
}
