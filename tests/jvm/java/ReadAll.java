import java.util.Set;
import java.util.TreeSet;

import org.apache.kafka.clients.admin.Admin;

/** Arguments: bootstrap. Says every record of every topic, at both isolation levels. */
public final class ReadAll {
    public static void main(String[] args) throws Exception {
        Set<String> topics;
        try (Admin admin = Admin.create(Kit.properties(args[0]))) {
            topics = new TreeSet<>(admin.listTopics().names().get());
        }
        for (String topic : topics) {
            for (String isolation : new String[] {"read_committed", "read_uncommitted"}) {
                Kit.readAll(args[0], topic, isolation).forEach(
                    record -> Kit.say(record, topic, isolation, record.timestampType(),
                        record.timestamp(), record.leaderEpoch()));
            }
        }
    }
}
