// The golden batches, Java side: `java -cp JARS:CLASSES RecordBatches COMMAND FILE`.
//
// `write` builds batches in every message format, codec and level with Kafka's own builder and writes a line for each:
// name, bytes in hexadecimal, and the batch's meaning as text. `check` reads such lines that the other side made, with
// Kafka's classes, and compares the text. `validate` gives batches, good and bad, to Kafka's LogValidator under various
// topic settings and writes what became of them, so that the other side can do the same and compare.

import java.io.PrintWriter;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.*;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import java.util.zip.CRC32C;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.message.SnapshotFooterRecord;
import org.apache.kafka.common.message.SnapshotHeaderRecord;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.*;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

public final class RecordBatches {
    private static final HexFormat HEX = HexFormat.of();
    private static final long NOW = 1_700_000_000_000L;

    public static void main(String[] arguments) throws Exception {
        Path file = Path.of(arguments[1]);
        switch (arguments[0]) {
            case "write" -> write(file);
            case "check" -> System.exit(check(file) ? 0 : 1);
            case "validate" -> validate(file);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    // What is written

    private record Entry(long timestamp, byte[] key, byte[] value, Header... headers) {}

    private static Map<String, Compression> compressions(byte magic) {
        Map<String, Compression> all = new LinkedHashMap<>();
        all.put("none", Compression.NONE);
        all.put("snappy", Compression.snappy().build());
        for (int level : new int[] {-1, 1, 6, 9})
            all.put("gzip" + level, Compression.gzip().level(level).build());
        for (int level : new int[] {1, 4, 9, 12, 17})
            all.put("lz4-" + level, Compression.lz4().level(level).build());
        if (magic == 2)
            for (int level : new int[] {-131072, -1, 1, 3, 10, 22})
                all.put("zstd" + level, Compression.zstd().level(level).build());
        return all;
    }

    private static byte[] bytes(int length, long seed) {
        byte[] bytes = new byte[length];
        Random random = new Random(seed);
        for (int i = 0; i < length; i++)
            bytes[i] = (byte) (seed % 2 == 0 ? random.nextInt() : 'a' + random.nextInt(3));
        return bytes;
    }

    /** Sets of records that differ in what a codec or a reader could trip over. */
    private static Map<String, List<Entry>> shapes(byte magic) {
        Map<String, List<Entry>> shapes = new LinkedHashMap<>();
        shapes.put("one", List.of(new Entry(NOW, "key".getBytes(), "value".getBytes())));
        shapes.put("nulls", List.of(new Entry(NOW, null, null), new Entry(NOW - 5, new byte[0], null),
            new Entry(NOW + 5, null, new byte[0])));
        shapes.put("timeless", List.of(new Entry(-1, null, bytes(3, 1)), new Entry(-1, null, bytes(3, 2))));
        List<Entry> many = new ArrayList<>();
        for (int i = 0; i < 700; i++)
            many.add(new Entry(NOW + i * 37 % 1000, i % 3 == 0 ? null : bytes(i % 30, i), bytes(i % 250, i + 1)));
        shapes.put("many", many);
        shapes.put("large", List.of(new Entry(NOW, null, bytes(200_001, 1)), new Entry(NOW, null, bytes(70_000, 2))));
        if (magic == 2)
            shapes.put("headers", List.of(
                new Entry(NOW, bytes(4, 4), bytes(9, 9), new RecordHeader("one", bytes(3, 3)), new RecordHeader("", null)),
                new Entry(NOW, null, null, new RecordHeader("größe", new byte[0]), new RecordHeader("größe", bytes(99, 1)))));
        return shapes;
    }

    private static MemoryRecords build(byte magic, Compression compression, TimestampType type, long baseOffset,
                                       long producerId, boolean transactional, List<Entry> entries) {
        boolean idempotent = producerId >= 0;
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 20), magic, compression, type, baseOffset,
            type == TimestampType.LOG_APPEND_TIME ? NOW : RecordBatch.NO_TIMESTAMP, producerId,
            (short) (idempotent ? 3 : -1), idempotent ? 17 : -1, transactional, magic == 2 ? 5 : -1);
        for (Entry entry : entries)
            builder.append(entry.timestamp, entry.key, entry.value, entry.headers);
        return builder.build();
    }

    private static void write(Path file) throws Exception {
        try (PrintWriter out = new PrintWriter(Files.newBufferedWriter(file))) {
            for (byte magic = 0; magic <= 2; magic++)
                for (var compression : compressions(magic).entrySet())
                    for (var shape : shapes(magic).entrySet())
                        for (TimestampType type : magic == 0 ? List.of(TimestampType.CREATE_TIME)
                                : List.of(TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)) {
                            String name = String.join(",", "magic" + magic, compression.getKey(), shape.getKey(), type.name);
                            print(out, name, build(magic, compression.getValue(), type, 1L << 33, -1, false, shape.getValue()));
                        }
            for (boolean transactional : new boolean[] {false, true})
                print(out, "producer,transactional=" + transactional, build((byte) 2, Compression.NONE,
                    TimestampType.CREATE_TIME, 0, 4711, transactional, shapes((byte) 2).get("one")));
            for (ControlRecordType type : List.of(ControlRecordType.ABORT, ControlRecordType.COMMIT))
                print(out, "end-txn," + type, MemoryRecords.withEndTransactionMarker(99, NOW, 5, 4711, (short) 3,
                    new EndTransactionMarker(type, 12)));
            ByteBuffer space = ByteBuffer.allocate(1 << 16);
            print(out, "leader-change", MemoryRecords.withLeaderChangeMessage(7, NOW, 2, space,
                new LeaderChangeMessage().setLeaderId(3)));
            print(out, "snapshot-header", MemoryRecords.withSnapshotHeaderRecord(0, NOW, 2, ByteBuffer.allocate(1 << 16),
                new SnapshotHeaderRecord().setLastContainedLogTimestamp(8)));
            print(out, "snapshot-footer", MemoryRecords.withSnapshotFooterRecord(9, NOW, 2, ByteBuffer.allocate(1 << 16),
                new SnapshotFooterRecord()));
        }
    }

    private static void print(PrintWriter out, String name, MemoryRecords records) {
        out.println(String.join(" ", name, hex(records.buffer()), text(records)));
    }

    // The meaning of batches as text

    private static String text(MemoryRecords records) {
        StringBuilder text = new StringBuilder();
        for (MutableRecordBatch batch : records.batches()) {
            batch.ensureValid();
            text.append("batch(").append(batch.magic()).append(',').append(batch.lastOffset()).append(',')
                .append(batch.timestampType().name).append(',').append(batch.maxTimestamp()).append(',')
                .append(batch.compressionType().name).append(',').append(batch.partitionLeaderEpoch()).append(',')
                .append(batch.producerId()).append(',').append(batch.producerEpoch()).append(',')
                .append(batch.baseSequence()).append(',').append(batch.isTransactional()).append(',')
                .append(batch.isControlBatch()).append(')');
            for (Record record : batch) {
                text.append(record.offset()).append(':').append(record.timestamp()).append(':')
                    .append(text(record.key())).append(':').append(text(record.value()));
                for (Header header : record.headers())
                    text.append(':').append(text(ByteBuffer.wrap(header.key().getBytes(java.nio.charset.StandardCharsets.UTF_8))))
                        .append('=').append(text(header.value() == null ? null : ByteBuffer.wrap(header.value())));
                if (batch.isControlBatch())
                    text.append(":").append(ControlRecordType.parse(record.key()));
                text.append(';');
            }
        }
        return text.toString();
    }

    private static String text(ByteBuffer bytes) {
        if (bytes == null)
            return "null";
        if (bytes.remaining() <= 16)
            return "0x" + hex(bytes);
        CRC32C checksum = new CRC32C();
        checksum.update(bytes.duplicate());
        return bytes.remaining() + "#" + checksum.getValue();
    }

    private static String hex(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HEX.formatHex(bytes);
    }

    // What is read

    private static boolean check(Path file) throws Exception {
        int lines = 0, wrong = 0;
        for (String line : Files.readAllLines(file)) {
            String[] parts = line.split(" ", 3);
            String text;
            try {
                text = text(MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(parts[1]))));
            } catch (Exception refused) {
                text = refused.toString();
            }
            lines++;
            if (!text.equals(parts[2])) {
                wrong++;
                System.out.println(parts[0] + ":\n  expected " + parts[2] + "\n  Kafka reads " + text);
            }
        }
        System.out.println(lines + " batches checked, " + wrong + " read differently");
        return wrong == 0;
    }

    // What is validated

    private record Rules(boolean compacted, TimestampType type, long beforeMaxMs, long afterMaxMs, CompressionType codec) {
        @Override public String toString() {
            return String.join(",", Boolean.toString(compacted), type.name, Long.toString(beforeMaxMs), Long.toString(afterMaxMs),
                codec == null ? "producer" : codec.name);
        }
    }

    private static void validate(Path file) throws Exception {
        List<Rules> rules = new ArrayList<>();
        for (boolean compacted : new boolean[] {false, true})
            for (TimestampType type : List.of(TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME))
                for (long bound : new long[] {Long.MAX_VALUE, 0, 300})
                    rules.add(new Rules(compacted, type, bound, bound == 0 ? 500 : bound, null));
        for (CompressionType codec : CompressionType.values())
            for (TimestampType type : List.of(TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME))
                rules.add(new Rules(false, type, Long.MAX_VALUE, 3_600_000, codec));
        Map<String, Compression> codecs = new LinkedHashMap<>();
        for (CompressionType codec : CompressionType.values())
            codecs.put(codec.name, Compression.of(codec).build());
        try (PrintWriter out = new PrintWriter(Files.newBufferedWriter(file))) {
            for (var codec : codecs.entrySet())
                for (var shape : shapes((byte) 2).entrySet())
                    for (var change : changes().entrySet()) {
                        MemoryRecords records = build((byte) 2, codec.getValue(), TimestampType.CREATE_TIME, 0,
                            change.getKey().startsWith("producer") ? 4711 : -1, false, shape.getValue());
                        byte[] changed = changed(records, change.getValue());
                        String name = String.join(",", codec.getKey(), shape.getKey(), change.getKey());
                        boolean everyRule = change.getKey().equals("as-is") && !shape.getKey().equals("large");
                        for (Rules rule : everyRule ? rules : rules.subList(0, 1))
                            out.println(String.join(" ", name, rule.toString(), HEX.formatHex(changed),
                                outcome(changed, codec.getValue().type(), rule)));
                    }
        }
    }

    /** What a client could get wrong, by name. The checksum is made right afterwards. */
    private static Map<String, Consumer<ByteBuffer>> changes() {
        Map<String, Consumer<ByteBuffer>> changes = new LinkedHashMap<>();
        changes.put("as-is", batch -> {});
        changes.put("producer", batch -> {});
        changes.put("producer-without-sequence", batch -> batch.putInt(53, -1));
        changes.put("max-timestamp", batch -> batch.putLong(35, 12345));
        changes.put("count-too-low", batch -> batch.putInt(57, batch.getInt(57) - 1));
        changes.put("count-too-high", batch -> batch.putInt(57, batch.getInt(57) + 1));
        changes.put("count-and-offsets-too-high", batch -> {
            batch.putInt(57, batch.getInt(57) + 1);
            batch.putInt(23, batch.getInt(23) + 1);
        });
        changes.put("count-and-offsets-too-low", batch -> {
            batch.putInt(57, batch.getInt(57) - 1);
            batch.putInt(23, batch.getInt(23) - 1);
        });
        changes.put("count-zero", batch -> batch.putInt(57, 0));
        changes.put("count-negative", batch -> batch.putInt(57, -1));
        changes.put("last-offset-delta-negative", batch -> batch.putInt(23, -1));
        changes.put("control", batch -> batch.putShort(21, (short) (batch.getShort(21) | 0x20)));
        changes.put("log-append-time", batch -> batch.putShort(21, (short) (batch.getShort(21) | 0x08)));
        changes.put("delete-horizon", batch -> batch.putShort(21, (short) (batch.getShort(21) | 0x40)));
        changes.put("base-timestamp", batch -> batch.putLong(27, 77));
        return changes;
    }

    private static byte[] changed(MemoryRecords records, Consumer<ByteBuffer> change) {
        byte[] bytes = HEX.parseHex(hex(records.buffer()));
        ByteBuffer batch = ByteBuffer.wrap(bytes);
        change.accept(batch);
        CRC32C checksum = new CRC32C();
        checksum.update(bytes, 21, bytes.length - 21);
        batch.putInt(17, (int) checksum.getValue());
        return bytes;
    }

    private static String outcome(byte[] bytes, CompressionType source, Rules rules) {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes.clone()));
        Compression target = Compression.of(rules.codec == null ? source : rules.codec).build();
        LogValidator validator = new LogValidator(records, new TopicPartition("topic", 0), stoppedClock(), source, target,
            rules.compacted, (byte) 2, rules.type, rules.beforeMaxMs, rules.afterMaxMs, 5, AppendOrigin.CLIENT);
        try {
            LogValidator.ValidationResult result = validator.validateMessagesAndAssignOffsets(PrimitiveRef.ofLong(1000),
                ignoringMetrics(), BufferSupplier.NO_CACHING);
            return "ok " + text(result.validatedRecords());
        } catch (RecordValidationException refused) {
            return "refused " + Errors.forException(refused.invalidException()) + " " + refused.recordErrors().stream()
                .map(error -> Integer.toString(error.batchIndex)).collect(Collectors.joining(","));
        } catch (Exception refused) {
            return "refused " + Errors.forException(refused) + " -";
        }
    }

    private static Time stoppedClock() {
        return (Time) Proxy.newProxyInstance(RecordBatches.class.getClassLoader(), new Class<?>[] {Time.class},
            (proxy, method, arguments) -> NOW);
    }

    private static LogValidator.MetricsRecorder ignoringMetrics() {
        return (LogValidator.MetricsRecorder) Proxy.newProxyInstance(RecordBatches.class.getClassLoader(),
            new Class<?>[] {LogValidator.MetricsRecorder.class}, (proxy, method, arguments) -> null);
    }
}
