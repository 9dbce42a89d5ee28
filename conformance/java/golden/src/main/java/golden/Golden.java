package golden;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.PrintWriter;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.Map;

import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * The golden bytes, Java side.
 *
 * {@code write FILE} fills every message class of Kafka at every version in several ways and writes a
 * line for each: name, version, filling, the bytes in hexadecimal (ended by a dash, so that none is still a
 * word) and the canonical text of the value. Before them stands a line for each API: its versions, listeners
 * and header versions.
 *
 * {@code check FILE} reads lines of the same form that the other side made, decodes the bytes with
 * Kafka's classes, compares the text, writes the value again and compares the bytes. Every difference
 * is printed; any makes the exit status 1.
 */
public final class Golden {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        Map<String, Class<? extends Message>> messages = Messages.all();
        Path file = Path.of(arguments[1]);
        switch (arguments[0]) {
            case "write" -> write(messages, file);
            case "check" -> System.exit(check(messages, file) ? 0 : 1);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    private static void write(Map<String, Class<? extends Message>> messages, Path file)
            throws Exception {
        int lines = 0;
        try (PrintWriter out = new PrintWriter(Files.newBufferedWriter(file))) {
            for (ApiKeys api : ApiKeys.values()) {
                out.println(tableLine(api));
            }
            for (Map.Entry<String, Class<? extends Message>> entry : messages.entrySet()) {
                Message probe = entry.getValue().getConstructor().newInstance();
                for (short version = probe.lowestSupportedVersion();
                        version <= probe.highestSupportedVersion(); version++) {
                    for (Filling.Style style : Filling.Style.values()) {
                        Message message = entry.getValue().getConstructor().newInstance();
                        new Filling(style).fill(message, version);
                        out.println(String.join(" ", entry.getKey(), Short.toString(version),
                            style.name(), HEX.formatHex(encode(message, version)) + "-",
                            Dump.of(message)));
                        lines++;
                    }
                }
            }
        }
        System.out.println(messages.size() + " messages, " + lines + " values written");
    }

    /** What Kafka says about an API besides its fields: the versions of the headers go with its versions. */
    private static String tableLine(ApiKeys api) {
        StringBuilder line = new StringBuilder("@api " + api.id + " " + api.name
            + " " + api.oldestVersion() + " " + api.latestVersion(true) + " " + api.latestVersion(false)
            + " " + api.inScope(ApiMessageType.ListenerType.BROKER)
            + " " + api.inScope(ApiMessageType.ListenerType.CONTROLLER));
        for (short version = api.oldestVersion(); version <= api.latestVersion(true); version++) {
            line.append(" " + api.requestHeaderVersion(version) + "/" + api.responseHeaderVersion(version));
        }
        return line.toString();
    }

    private static byte[] encode(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        if (buffer.hasRemaining()) {
            throw new IllegalStateException("the size was not that of the bytes written");
        }
        return buffer.array();
    }

    private static boolean check(Map<String, Class<? extends Message>> messages, Path file)
            throws IOException {
        int lines = 0;
        int differences = 0;
        try (BufferedReader in = Files.newBufferedReader(file)) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                String[] words = line.split(" ", 5);
                lines++;
                String difference = difference(messages.get(words[0]), words);
                if (difference != null) {
                    differences++;
                    System.out.println(words[0] + " version " + words[1] + " " + words[2] + ": " + difference);
                }
            }
        }
        System.out.println(lines + " values read, " + differences + " differ");
        return lines > 0 && differences == 0;
    }

    private static String difference(Class<? extends Message> type, String[] words) {
        if (type == null) {
            return "Kafka has no such message";
        }
        try {
            short version = Short.parseShort(words[1]);
            String hex = words[3].substring(0, words[3].length() - 1);
            ByteBuffer buffer = ByteBuffer.wrap(HEX.parseHex(hex));
            Message message = type.getConstructor().newInstance();
            message.read(new ByteBufferAccessor(buffer), version);
            if (buffer.hasRemaining()) {
                return buffer.remaining() + " bytes were not read";
            }
            String text = Dump.of(message);
            if (!text.equals(words[4])) {
                return "Kafka reads\n  " + text + "\nwhere this was written\n  " + words[4];
            }
            String again = HEX.formatHex(encode(message, version));
            return again.equals(hex) ? null : "Kafka writes\n  " + again + "\nfor\n  " + hex;
        } catch (ReflectiveOperationException | RuntimeException failure) {
            return failure.toString();
        }
    }
}
