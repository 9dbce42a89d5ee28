package golden;

import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.util.Collection;
import java.util.Map;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.common.record.internal.MemoryRecords;

/** Sets the fields that a version has, deterministically. */
final class Filling {
    enum Style {
        /** As constructed. */
        DEFAULTS,
        /** Everything set, no nulls, two elements in every array. */
        FULL,
        /** Null where there is null, everything else set. */
        NULLS,
        /** Arrays, strings and bytes without content. */
        EMPTY,
        /** Lowest and highest numbers, long strings and bytes, tagged fields that no schema has. */
        EXTREME
    }

    private final Style style;
    private int turn = 0;

    Filling(Style style) {
        this.style = style;
    }

    void fill(Message message, short version) {
        if (style != Style.DEFAULTS) {
            fill(message, Shape.schemas(message.getClass())[version]);
        }
    }

    private void fill(Message message, Schema schema) {
        Map<String, Field> fields = Shape.fields(message.getClass());
        for (BoundField field : schema.fields()) {
            if (field.def.type instanceof TaggedFields tagged) {
                tagged.fields().values()
                    .forEach(one -> set(message, fields.get(Shape.key(one.name)), one.type));
                if (style == Style.EXTREME) {
                    message.unknownTaggedFields().add(new RawTaggedField(120, new byte[] {1, 2, 3}));
                    message.unknownTaggedFields().add(new RawTaggedField(70000, new byte[200]));
                }
            } else {
                set(message, fields.get(Shape.key(field.def.name)), field.def.type);
            }
        }
    }

    private void set(Message message, Field field, Type type) {
        try {
            field.set(message, value(field, field.getType(), type));
        } catch (IllegalAccessException failure) {
            throw new IllegalStateException(failure);
        }
    }

    private Object value(Field field, Class<?> javaType, Type type) {
        if (type.isNullable() && style == Style.NULLS) {
            return null;
        }
        if (type.isArray()) {
            return array(field, type.arrayElementType().orElseThrow());
        }
        if (type instanceof Schema schema) {
            return struct(javaType, schema);
        }
        if (javaType == String.class) {
            return text();
        }
        if (javaType == Uuid.class) {
            return new Uuid(number(64), number(64));
        }
        if (javaType == byte[].class) {
            return octets();
        }
        if (javaType == ByteBuffer.class) {
            return ByteBuffer.wrap(octets());
        }
        if (type == Type.RECORDS || type == Type.COMPACT_RECORDS
                || type == Type.NULLABLE_RECORDS || type == Type.COMPACT_NULLABLE_RECORDS) {
            return MemoryRecords.readableRecords(ByteBuffer.wrap(octets()));
        }
        if (javaType == boolean.class) {
            return style == Style.EXTREME ? number(32) >= 0 : true;
        }
        if (type == Type.UINT16) {
            return (int) (number(16) & 0xffff);
        }
        if (type == Type.UNSIGNED_INT32) {
            return number(32) & 0xffffffffL;
        }
        if (javaType == double.class) {
            return number(32) / 4.0;
        }
        if (javaType == byte.class || javaType == Byte.class) {
            return (byte) number(8);
        }
        if (javaType == short.class || javaType == Short.class) {
            return (short) number(16);
        }
        if (javaType == int.class || javaType == Integer.class) {
            return (int) number(32);
        }
        if (javaType == long.class || javaType == Long.class) {
            return number(64);
        }
        throw new IllegalStateException(field + " has type " + type + " in the schema");
    }

    private Object struct(Class<?> javaType, Schema schema) {
        try {
            Message struct = (Message) javaType.getConstructor().newInstance();
            fill(struct, schema);
            return struct;
        } catch (ReflectiveOperationException failure) {
            throw new IllegalStateException(failure);
        }
    }

    private Object array(Field field, Type elementType) {
        Collection<Object> elements = Shape.newCollection(field);
        int count = switch (style) {
            case DEFAULTS, EMPTY -> 0;
            case FULL, NULLS -> 2;
            case EXTREME -> 1;
        };
        for (int index = 0; index < count; index++) {
            elements.add(value(field, Shape.elementType(field), elementType));
        }
        return elements;
    }

    /** A number that is no field's default, or one at the edge of its bits. */
    private long number(int bits) {
        turn++;
        if (style != Style.EXTREME) {
            return 7 + turn % 100;
        }
        return switch (turn % 4) {
            case 0 -> -1;
            case 1 -> -1L << (bits - 1);
            case 2 -> ~(-1L << (bits - 1));
            default -> 0;
        };
    }

    private String text() {
        turn++;
        return switch (style) {
            case EMPTY -> "";
            case EXTREME -> "é語\ud83e\udd80\u0000".repeat(turn % 40);
            default -> "text-" + turn;
        };
    }

    private byte[] octets() {
        turn++;
        byte[] octets = new byte[switch (style) {
            case EMPTY -> 0;
            case EXTREME -> 125 + turn % 5;
            default -> 1 + turn % 9;
        }];
        for (int index = 0; index < octets.length; index++) {
            octets[index] = (byte) (turn + index);
        }
        return octets;
    }
}
