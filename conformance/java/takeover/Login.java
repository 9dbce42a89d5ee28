import java.io.IOException;
import java.io.Reader;
import java.nio.file.*;
import java.util.*;

/** How the workload's clients reach the broker: its address, and what they need to get in there. */
final class Login {
    private static final Map<String, Object> NEEDED = new HashMap<>();

    private Login() {
    }

    /** Reads what clients need from a properties file. */
    static void read(String file) throws IOException {
        Properties properties = new Properties();
        try (Reader reader = Files.newBufferedReader(Path.of(file))) {
            properties.load(reader);
        }
        properties.forEach((key, value) -> NEEDED.put(String.valueOf(key), value));
    }

    /** Whether clients need anything. */
    static boolean isNeeded() {
        return !NEEDED.isEmpty();
    }

    /** The settings of a client that gets in as somebody else, by a JAAS entry. */
    static Map<String, Object> as(String user, String password, String more) {
        return settings("", "sasl.jaas.config", "org.apache.kafka.common.security.scram.ScramLoginModule required username=\""
            + user + "\" password=\"" + password + "\"" + more + ";", "default.api.timeout.ms", "60000",
            "request.timeout.ms", "30000");
    }

    /** The settings of a client: keys and values in turn, and what it needs to get in. */
    static Map<String, Object> settings(String bootstrap, String... given) {
        Map<String, Object> settings = new HashMap<>(NEEDED);
        settings.putIfAbsent("bootstrap.servers", bootstrap);
        for (int i = 0; i < given.length; i += 2) {
            settings.put(given[i], given[i + 1]);
        }
        return settings;
    }
}
