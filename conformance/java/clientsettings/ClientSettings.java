// The settings of Kafka's clients with their defaults: `java -cp JARS:CLASSES ClientSettings` writes a line for each,
// `CLIENT KEY DEFAULT` separated by tabs, without the third word if there is no default. The tests of ottla-client read
// the file and must know the same keys with the same defaults.

import java.util.TreeMap;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;

public final class ClientSettings {
    public static void main(String[] args) {
        show("producer", ProducerConfig.configDef());
        show("consumer", ConsumerConfig.configDef());
        show("admin", AdminClientConfig.configDef());
    }

    private static void show(String client, ConfigDef definition) {
        for (var key : new TreeMap<>(definition.configKeys()).values()) {
            // What no user may set.
            if (key.internalConfig) {
                continue;
            }
            boolean isNothing = key.defaultValue == null || key.defaultValue == ConfigDef.NO_DEFAULT_VALUE;
            String value = isNothing ? "" : "\t" + ConfigDef.convertToString(key.defaultValue, key.type).replace("class ", "");
            System.out.println(client + "\t" + key.name + value);
        }
    }
}
