import java.util.Map;
import java.util.TreeMap;
import kafka.server.DynamicBrokerConfig$;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Prints a line for each config that Kafka defines: kind, name, type, default, limits and how it can be altered. */
public class ConfigTables {
    public static void main(String[] arguments) {
        print("broker", AbstractKafkaConfig.CONFIG_DEF, DynamicBrokerConfig$.MODULE$.dynamicConfigUpdateModes());
        print("topic", LogConfig.configDefCopy(), Map.of());
        print("group", GroupConfig.configDef(), Map.of());
        print("client-metrics", ClientMetricsConfigs.configDef(), Map.of());
    }

    private static void print(String kind, ConfigDef table, Map<String, String> modes) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(table.configKeys()).values()) {
            Object value = key.hasDefault() ? key.defaultValue : null;
            String shown = value == null ? "null" : ConfigDef.convertToString(value, key.type);
            String limits = key.validator == null ? "" : key.validator.toString();
            System.out.println(String.join(" | ", kind, key.name, key.type.toString(), shown, limits,
                modes.getOrDefault(key.name, kind.equals("broker") ? "read-only" : "cluster-wide"),
                key.internalConfig ? "internal" : "listed"));
        }
    }
}
