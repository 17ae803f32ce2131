import java.time.Duration;

import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Arguments: bootstrap, topic, transactional id. Leaves a transaction open on partition 0. */
public final class OpenTransaction {
    public static void main(String[] args) {
        KafkaProducer<String, String> producer =
            Kit.producer(args[0], "transactional.id", args[2], "transaction.timeout.ms", "600000");
        producer.initTransactions();
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(args[1], 0, "key", "open"));
        producer.flush();
        producer.close(Duration.ZERO);
    }
}
