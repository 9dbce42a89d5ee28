package golden;

import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.util.Collection;
import java.util.HashSet;
import java.util.Locale;
import java.util.Set;
import java.util.TreeMap;

import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;

/**
 * A generated class as its schema describes it. Kafka's schemas name fields in snake case, its classes
 * in camel case: both are compared in lower case without underscores.
 */
final class Shape {
    private Shape() { }

    static String key(String name) {
        return name.replace("_", "").toLowerCase(Locale.ROOT);
    }

    /** The class's own fields by key. */
    static TreeMap<String, Field> fields(Class<?> type) {
        TreeMap<String, Field> fields = new TreeMap<>();
        for (Field field : type.getDeclaredFields()) {
            if (!Modifier.isStatic(field.getModifiers()) && !field.getName().startsWith("_")
                    && !field.getName().equals("next") && !field.getName().equals("prev")) {
                field.setAccessible(true);
                fields.put(key(field.getName()), field);
            }
        }
        return fields;
    }

    /** The schemas of all versions; null where the class has no such version. */
    static Schema[] schemas(Class<?> type) {
        try {
            return (Schema[]) type.getField("SCHEMAS").get(null);
        } catch (ReflectiveOperationException failure) {
            throw new IllegalStateException(failure);
        }
    }

    /** The keys of the fields that any version has; the classes also keep fields that none has. */
    static Set<String> fieldsOfAnyVersion(Class<?> type) {
        Set<String> keys = new HashSet<>();
        for (Schema schema : schemas(type)) {
            if (schema == null) {
                continue;
            }
            for (BoundField field : schema.fields()) {
                if (field.def.type instanceof TaggedFields tagged) {
                    tagged.fields().values().forEach(one -> keys.add(key(one.name)));
                } else {
                    keys.add(key(field.def.name));
                }
            }
        }
        return keys;
    }

    /** The class of the elements of a list field, or of one of Kafka's keyed collections. */
    static Class<?> elementType(Field field) {
        Type generic = field.getGenericType();
        if (!(generic instanceof ParameterizedType)) {
            generic = ((Class<?>) generic).getGenericSuperclass();
        }
        return (Class<?>) ((ParameterizedType) generic).getActualTypeArguments()[0];
    }

    @SuppressWarnings("unchecked")
    static Collection<Object> newCollection(Field field) {
        if (field.getType() == java.util.List.class) {
            return new java.util.ArrayList<>();
        }
        try {
            return (Collection<Object>) field.getType().getConstructor(int.class).newInstance(2);
        } catch (ReflectiveOperationException failure) {
            throw new IllegalStateException(failure);
        }
    }
}
