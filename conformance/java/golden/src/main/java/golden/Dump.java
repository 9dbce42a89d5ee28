package golden;

import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.HexFormat;
import java.util.Map;
import java.util.Set;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.record.internal.MemoryRecords;

/**
 * The canonical text of a value, the same on both sides: structs with their fields in alphabetical
 * order, numbers in decimal, everything else in hexadecimal behind a letter for its type.
 */
final class Dump {
    private static final HexFormat HEX = HexFormat.of();

    private Dump() { }

    static String of(Message message) {
        StringBuilder out = new StringBuilder();
        struct(out, message);
        return out.toString();
    }

    private static void struct(StringBuilder out, Message message) {
        Set<String> known = Shape.fieldsOfAnyVersion(message.getClass());
        out.append('{');
        String comma = "";
        for (Map.Entry<String, Field> entry : Shape.fields(message.getClass()).entrySet()) {
            if (!known.contains(entry.getKey())) {
                continue;
            }
            out.append(comma).append(entry.getKey()).append(':');
            comma = ",";
            try {
                value(out, entry.getValue().get(message));
            } catch (IllegalAccessException failure) {
                throw new IllegalStateException(failure);
            }
        }
        out.append('}');
    }

    private static void value(StringBuilder out, Object value) {
        if (value == null) {
            out.append("null");
        } else if (value instanceof Message struct) {
            struct(out, struct);
        } else if (value instanceof Collection<?> elements) {
            out.append('[');
            String comma = "";
            for (Object element : elements) {
                out.append(comma);
                comma = ",";
                value(out, element);
            }
            out.append(']');
        } else if (value instanceof String text) {
            hex(out, 's', text.getBytes(StandardCharsets.UTF_8));
        } else if (value instanceof byte[] bytes) {
            hex(out, 'b', bytes);
        } else if (value instanceof ByteBuffer buffer) {
            hex(out, 'b', bytes(buffer));
        } else if (value instanceof MemoryRecords records) {
            hex(out, 'r', bytes(records.buffer()));
        } else if (value instanceof Uuid uuid) {
            hex(out, 'u', ByteBuffer.allocate(16).putLong(uuid.getMostSignificantBits())
                .putLong(uuid.getLeastSignificantBits()).array());
        } else if (value instanceof Double number) {
            hex(out, 'f', ByteBuffer.allocate(8).putDouble(number).array());
        } else {
            out.append(value);
        }
    }

    private static void hex(StringBuilder out, char letter, byte[] bytes) {
        out.append(letter).append(HEX.formatHex(bytes));
    }

    private static byte[] bytes(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return bytes;
    }
}
