import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Future;

import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;

/** Arguments: bootstrap, topic. Writes records by every codec with an idempotent producer. */
public final class Codecs {
    private static final int EACH = 300;

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0];
        String topic = args[1];
        for (String codec : new String[] {"none", "gzip", "snappy", "lz4", "zstd"}) {
            try (KafkaProducer<String, String> producer = Kit.producer(
                    bootstrap, "compression.type", codec, "enable.idempotence", "true",
                    "linger.ms", "20", "batch.size", "2000")) {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (int number = 0; number < EACH; number++) {
                    ProducerRecord<String, String> record = new ProducerRecord<>(
                        topic, 0, 1_700_000_000_000L + number, number % 7 == 0 ? null : codec,
                        number % 11 == 0 ? null : "value " + number + " of " + codec);
                    record.headers().add("codec", codec.getBytes(StandardCharsets.UTF_8));
                    record.headers().add("empty", null);
                    sent.add(producer.send(record));
                }
                producer.flush();
                long first = sent.get(0).get().offset();
                for (int number = 0; number < EACH; number++) {
                    RecordMetadata metadata = sent.get(number).get();
                    if (metadata.offset() != first + number
                            || metadata.timestamp() != 1_700_000_000_000L + number) {
                        throw new AssertionError(metadata);
                    }
                }
                Kit.say("wrote", codec, first);
            }
        }
        Kit.readAll(bootstrap, topic, "read_uncommitted").forEach(record -> Kit.say(record));
    }
}
