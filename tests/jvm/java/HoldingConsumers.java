import java.util.ArrayList;
import java.util.List;

import org.apache.kafka.clients.consumer.KafkaConsumer;

/**
 * Arguments: bootstrap, topic, group, group protocol, number of members. Members of a group that
 * stay until the process is killed, for tools to look at.
 */
public final class HoldingConsumers {
    public static void main(String[] args) {
        List<KafkaConsumer<String, String>> members = new ArrayList<>();
        for (int number = 0; number < Integer.parseInt(args[4]); number++) {
            KafkaConsumer<String, String> member = Kit.consumer(
                args[0], "group.id", args[2], "group.protocol", args[3],
                "client.id", "holder-" + number, "auto.offset.reset", "earliest");
            member.subscribe(List.of(args[1]));
            members.add(member);
        }
        while (true) {
            members.forEach(member -> member.poll(Kit.POLL));
        }
    }
}
