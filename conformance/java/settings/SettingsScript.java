// The conformance script of dynamic broker settings (KIP-226): `SettingsScript BOOTSTRAP`.
//
// Every setting that Kafka changes while a broker runs is asked to be changed, for this broker and for all, to its
// default, to values near and far from it, and to such as it cannot have; then every setting that does not change, and
// settings of a listener. Each is only to be validated, so that nothing changes and other scripts run beside this one.
// What is compared is the kind of the answer: the words in which a broker refuses are its own.

import java.util.*;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.config.*;
import org.apache.kafka.server.config.*;

public final class SettingsScript extends Script {
    private static final Map<String, String> LEVELS = new TreeMap<>(Map.of("broker", "1", "cluster", ""));

    private SettingsScript(String bootstrap) {
        super(bootstrap);
    }

    public static void main(String[] arguments) {
        SettingsScript script = new SettingsScript(arguments[0]);
        script.dynamic();
        script.readOnly();
        script.ofListeners();
        script.listeners();
        script.several();
        script.admin.close();
        System.exit(0);
    }

    private void dynamic() {
        for (String name : new TreeSet<>(DynamicBrokerConfig.ALL_DYNAMIC_CONFIGS)) {
            step("dynamic " + name, () -> {
                Map<String, Object> answers = new TreeMap<>();
                for (String value : values(AbstractKafkaConfig.CONFIG_DEF.configKeys().get(name))) {
                    LEVELS.forEach((level, broker) -> answers.put(level + " " + value, answer(broker, name, value)));
                }
                return answers;
            });
        }
    }

    /** Values that the setting has, may have and may not have. */
    private static Set<String> values(ConfigDef.ConfigKey key) {
        String usual = key == null || key.defaultValue == null ? "" : ConfigDef.convertToString(key.defaultValue, key.type);
        Set<String> values = new TreeSet<>(Set.of(usual));
        switch (key == null ? ConfigDef.Type.STRING : key.type) {
            case INT, LONG, SHORT -> {
                values.addAll(List.of("-5", "-2", "-1", "0", "1", "9000000000000000000", "many", "1.5", ""));
                if (!usual.isEmpty()) {
                    long number = Long.parseLong(usual);
                    values.addAll(List.of("" + number / 2, "" + (number / 2 - 1), "" + number * 2, "" + (number * 2 + 1)));
                }
            }
            case DOUBLE -> values.addAll(List.of("-1", "0", "0.1", "1", "2", "1e9", "NaN", "many"));
            case BOOLEAN -> values.addAll(List.of("true", "FALSE", "1", ""));
            default -> values.addAll(List.of("of no meaning", "a,b"));
        }
        return values;
    }

    private void readOnly() {
        step("read-only settings that are changed", () -> {
            Set<String> changed = new TreeSet<>();
            for (String name : new TreeSet<>(AbstractKafkaConfig.CONFIG_DEF.names())) {
                if (DynamicBrokerConfig.ALL_DYNAMIC_CONFIGS.contains(name)) {
                    continue;
                }
                LEVELS.forEach((level, broker) -> {
                    String answer = answer(broker, name, "1");
                    if (!answer.equals("InvalidRequestException")) {
                        changed.add(level + " " + name + " " + answer);
                    }
                });
            }
            return changed;
        });
    }

    private void ofListeners() {
        for (String key : List.of("max.connections=5", "max.connections=0", "max.connections=many",
            "max.connection.creation.rate=5", "max.connection.creation.rate=0", "num.network.threads=6",
            "num.network.threads=7", "num.network.threads=1", "num.io.threads=100", "of.no.meaning=1")) {
            for (String listener : List.of("plaintext", "PLAINTEXT", "elsewhere")) {
                String[] parts = ("listener.name." + listener + "." + key).split("=");
                step("of a listener " + String.join("=", parts), () -> {
                    Map<String, Object> answers = new TreeMap<>();
                    LEVELS.forEach((level, broker) -> answers.put(level, answer(broker, parts[0], parts[1])));
                    return answers;
                });
            }
        }
    }

    /** Listeners beside those that the broker has. Nothing is opened. */
    private void listeners() {
        step("listeners that are added and removed", () -> {
            ConfigResource resource = new ConfigResource(ConfigResource.Type.BROKER, "1");
            String own = admin.describeConfigs(List.of(resource)).all().get().get(resource).get("listeners").value();
            String first = own.split(",")[0];
            String added = own + ",OTHER://127.0.0.1:0";
            String map = "listener.security.protocol.map";
            String withOther = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,OTHER:PLAINTEXT";
            Map<String, Object> answers = new TreeMap<>();
            answers.put("the same", answer("1", "listeners", own));
            answers.put("one more", answer("1", Map.of("listeners", added, map, withOther)));
            answers.put("one without a protocol", answer("1", "listeners", added));
            answers.put("one with the port of another", answer("1", Map.of(
                "listeners", own + ",OTHER" + first.substring(first.indexOf("://")), map, withOther)));
            answers.put("one twice", answer("1", "listeners", own + "," + first));
            answers.put("without that of brokers", answer("1", Map.of(
                "listeners", added.substring(added.indexOf(',') + 1), map, withOther)));
            answers.put("another protocol", answer("1", map, "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT"));
            answers.put("advertised", answer("1", "advertised.listeners", first));
            answers.put("of all brokers", answer("", Map.of("listeners", added, map, withOther)));
            answers.put("with settings of its own", answer("1", Map.of("listeners", added, map, withOther,
                "listener.name.other.max.connections", "5")));
            return answers;
        });
    }

    private void several() {
        step("of the broker in other digits", () -> answer("01", "log.cleaner.backoff.ms", "15001"));
        step("several that do not go together", () -> answers(
            Map.of("log.cleaner.min.compaction.lag.ms", "10", "log.cleaner.max.compaction.lag.ms", "5")));
        step("several of which one is read-only", () -> answers(
            Map.of("log.cleaner.backoff.ms", "15001", "log.dirs", "/tmp")));
        step("local retention beyond all retention", () -> answers(
            Map.of("log.retention.ms", "1000", "log.local.retention.ms", "1001")));
        step("local retention as long as all retention", () -> answers(
            Map.of("log.retention.ms", "1000", "log.local.retention.ms", "1000")));
        step("local retention without an end", () -> answers(
            Map.of("log.retention.bytes", "1000", "log.local.retention.bytes", "-1")));
        step("what is no setting", () -> answers(Map.of("no.such.setting", "1")));
    }

    private Map<String, Object> answers(Map<String, String> settings) {
        Map<String, Object> answers = new TreeMap<>();
        LEVELS.forEach((level, broker) -> answers.put(level, answer(broker, settings)));
        return answers;
    }

    private String answer(String broker, String name, String value) {
        return answer(broker, Map.of(name, value));
    }

    /** What is said to these settings of a broker, or of all where it is empty. */
    private String answer(String broker, Map<String, String> settings) {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.BROKER, broker);
        List<AlterConfigOp> changes = new TreeMap<>(settings).entrySet().stream()
            .map(set -> new AlterConfigOp(new ConfigEntry(set.getKey(), set.getValue()), AlterConfigOp.OpType.SET)).toList();
        try {
            admin.incrementalAlterConfigs(Map.of(resource, changes), new AlterConfigsOptions().validateOnly(true)).all().get();
            return "may be";
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
