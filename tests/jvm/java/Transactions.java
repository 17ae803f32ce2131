import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Arguments: bootstrap, topic with two partitions, transactional id. Transactions that commit and
 * abort, one left open, and the producer that takes over from it.
 */
public final class Transactions {
    private static String bootstrap;
    private static String topic;

    private static KafkaProducer<String, String> producer(String transactionalId) {
        return Kit.producer(bootstrap, "transactional.id", transactionalId,
            "max.block.ms", "20000", "delivery.timeout.ms", "20000",
            "request.timeout.ms", "10000");
    }

    private static void send(KafkaProducer<String, String> producer, String... values) {
        for (int number = 0; number < values.length; number++) {
            producer.send(new ProducerRecord<>(topic, number % 2, "key", values[number]));
        }
        producer.flush();
    }

    private static void show(String isolation) {
        Kit.readAll(bootstrap, topic, isolation).forEach(record -> Kit.say(record, isolation));
    }

    public static void main(String[] args) {
        bootstrap = args[0];
        topic = args[1];
        try (KafkaProducer<String, String> first = producer(args[2]);
                KafkaProducer<String, String> second = producer(args[2])) {
            first.initTransactions();
            first.beginTransaction();
            send(first, "committed 0", "committed 1", "committed 2");
            first.commitTransaction();
            first.beginTransaction();
            send(first, "aborted 0", "aborted 1");
            first.abortTransaction();
            first.beginTransaction();
            first.commitTransaction();
            first.beginTransaction();
            send(first, "committed 3");
            first.commitTransaction();
            first.beginTransaction();
            send(first, "open 0", "open 1");
            Kit.say("while one is open");
            show("read_committed");
            show("read_uncommitted");
            second.initTransactions();
            Kit.sayThrown("the fenced one commits:", () -> {
                first.commitTransaction();
                return null;
            });
            second.beginTransaction();
            send(second, "committed 4");
            second.commitTransaction();
            Kit.say("after the other took over");
            show("read_committed");
        }
    }
}
