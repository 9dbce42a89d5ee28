package golden;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.reflect.Modifier;
import java.nio.file.Path;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.jar.JarFile;

import org.apache.kafka.common.protocol.Message;

/** Finds Kafka's generated message classes on the class path. */
final class Messages {
    private static final Set<String> PACKAGES = Set.of(
        "org/apache/kafka/common/message",
        "org/apache/kafka/common/metadata",
        "org/apache/kafka/coordinator/group/generated",
        "org/apache/kafka/coordinator/transaction/generated",
        "org/apache/kafka/coordinator/share/generated",
        "org/apache/kafka/raft/generated",
        "org/apache/kafka/server/log/remote/metadata/storage/generated");

    private Messages() { }

    /** Schema name -> class. */
    static Map<String, Class<? extends Message>> all() throws IOException {
        Map<String, Class<? extends Message>> messages = new TreeMap<>();
        for (String entry : System.getProperty("java.class.path").split(":")) {
            if (!entry.endsWith(".jar") || !Path.of(entry).getFileName().toString().startsWith("kafka-")) {
                continue;
            }
            try (JarFile jar = new JarFile(entry)) {
                jar.stream()
                    .map(file -> file.getName())
                    .filter(name -> name.endsWith(".class") && !name.contains("$")
                        && PACKAGES.contains(name.substring(0, Math.max(0, name.lastIndexOf('/')))))
                    .forEach(name -> add(messages, name));
            } catch (UncheckedIOException failure) {
                throw failure.getCause();
            }
        }
        return messages;
    }

    private static void add(Map<String, Class<? extends Message>> messages, String file) {
        try {
            Class<?> type = Class.forName(
                file.substring(0, file.length() - ".class".length()).replace('/', '.'));
            boolean generated = Message.class.isAssignableFrom(type)
                && !type.isInterface() && !Modifier.isAbstract(type.getModifiers());
            if (generated) {
                Class<? extends Message> earlier =
                    messages.put(schemaName(type.getSimpleName()), type.asSubclass(Message.class));
                if (earlier != null) {
                    throw new IllegalStateException(type + " and " + earlier + " have one name");
                }
            }
        } catch (ClassNotFoundException failure) {
            throw new IllegalStateException(failure);
        }
    }

    /** Kafka appends "Data" to the names of requests, responses and headers. */
    private static String schemaName(String className) {
        return className.matches(".*(Request|Response|RequestHeader|ResponseHeader)Data")
            ? className.substring(0, className.length() - "Data".length())
            : className;
    }
}
