import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.zip.CRC32;
import java.util.zip.CRC32C;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;

/** What a record holds, made up from a random source, and the digest by which it is known again. */
final class Payload {
    private Payload() { }

    /** Every record has its writer and number in its value or in a header, so that no two are alike. */
    static ProducerRecord<byte[], byte[]> made(Random random, String topic, int partition, String writer, long number,
                                               int keys, int size) {
        byte[] key = keys > 0 ? bytes("key-" + random.nextInt(keys)) : random.nextInt(4) == 0 ? null
            : bytes("some-" + random.nextInt(1000));
        boolean isTombstone = key != null && random.nextInt(8) == 0;
        byte[] value = isTombstone ? null : value(random, writer + "/" + number + " ", size);
        ProducerRecord<byte[], byte[]> record =
            new ProducerRecord<>(topic, partition, System.currentTimeMillis(), key, value);
        record.headers().add("number", bytes(writer + "/" + number));
        for (int i = random.nextInt(3); i > 0; i--) {
            record.headers().add("same", random.nextInt(3) == 0 ? null : bytes("h" + random.nextInt(100)));
        }
        return record;
    }

    private static byte[] value(Random random, String beginning, int size) {
        byte[] start = bytes(beginning);
        // Mostly small, now and then far larger than a page.
        int length = start.length + (random.nextInt(50) == 0 ? 20_000 + random.nextInt(20_000) : random.nextInt(size + 1));
        byte[] value = Arrays.copyOf(start, length);
        boolean isCompressible = random.nextBoolean();
        for (int i = start.length; i < length; i++) {
            value[i] = (byte) (isCompressible ? 'a' + i % 7 : random.nextInt());
        }
        return value;
    }

    /** Sixteen hexadecimal digits over key, value and headers with their lengths. */
    static String digest(byte[] key, byte[] value, Headers headers) {
        CRC32 one = new CRC32();
        CRC32C other = new CRC32C();
        add(one, other, key);
        add(one, other, value);
        for (Header header : headers) {
            add(one, other, bytes(header.key()));
            add(one, other, header.value());
        }
        return String.format("%08x%08x", one.getValue(), other.getValue());
    }

    private static void add(CRC32 one, CRC32C other, byte[] part) {
        byte[] length = bytes(part == null ? "-" : part.length + ":");
        one.update(length);
        other.update(length);
        if (part != null) {
            one.update(part);
            other.update(part);
        }
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
