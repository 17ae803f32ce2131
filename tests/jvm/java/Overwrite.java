import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Arguments: bootstrap, topic. Writes the same few keys again and again, in transactions of which
 * every third is aborted, and deletes one of them in the end.
 */
public final class Overwrite {
    public static void main(String[] args) {
        try (KafkaProducer<String, String> producer = Kit.producer(
                args[0], "transactional.id", args[1], "compression.type", "lz4")) {
            producer.initTransactions();
            for (int round = 0; round < 30; round++) {
                producer.beginTransaction();
                for (int number = 0; number < 50; number++) {
                    producer.send(new ProducerRecord<>(
                        args[1], 0, "key " + number % 7, noise(round * 50 + number)));
                }
                if (round % 3 == 1) {
                    producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(args[1], 0, "key 3", null));
            producer.commitTransaction();
        }
    }

    /** A text that does not compress, so that there is more than one segment. */
    private static String noise(int seed) {
        StringBuilder text = new StringBuilder();
        new java.util.Random(seed).ints(3000, 32, 127).forEach(letter -> text.append((char) letter));
        return text.toString();
    }
}
