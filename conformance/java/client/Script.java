import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;
import java.util.zip.CRC32;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.*;

/** What the steps of the Java client's script are made of: clients, records, and the line that each step prints. */
class Script {
    /** Record timestamps are fixed; topics keep them with retention.ms=-1. */
    static final long T0 = 1_700_000_000_000L;
    static final ObjectMapper JSON =
        new ObjectMapper().configure(SerializationFeature.ORDER_MAP_ENTRIES_BY_KEYS, true);
    static final String MAIN = "java-main";
    /** How long what is to come may take, on a machine that does much else. */
    static final Duration PATIENCE = Duration.ofSeconds(120);
    /** Above every session that a stalled process could lose, and below the highest that a broker lets be. */
    static final int LONG_SESSION_MS = 600_000;

    final String bootstrap;
    final Admin admin;

    Script(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "default.api.timeout.ms", "60000",
            "request.timeout.ms", "30000"));
    }

    /** A consumer that polls on a thread of its own and shows what it holds. */
    final class Member {
        final Set<TopicPartition> assigned = ConcurrentHashMap.newKeySet();
        final AtomicBoolean isClosing = new AtomicBoolean();
        final Thread thread;
        volatile String failure;

        Member(Map<String, String> settings, String topic) {
            Consumer<byte[], byte[]> consumer = consumer(settings);
            consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    assigned.removeAll(partitions);
                }

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    assigned.addAll(partitions);
                }
            });
            thread = new Thread(() -> {
                try (consumer) {
                    while (!isClosing.get()) {
                        consumer.poll(Duration.ofMillis(50));
                    }
                } catch (RuntimeException error) {
                    failure = error.getClass().getSimpleName();
                }
                assigned.clear();
            });
            thread.start();
        }

        void close() throws InterruptedException {
            isClosing.set(true);
            thread.join(PATIENCE.toMillis());
            if (thread.isAlive()) {
                giveUp("the end of a member");
            }
        }
    }

    Producer<byte[], byte[]> producer(Map<String, String> settings) {
        Map<String, Object> all = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "client.id", "java-producer",
            "delivery.timeout.ms", "60000", "request.timeout.ms", "30000", "linger.ms", "0"));
        all.putAll(settings);
        return new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    }

    Consumer<byte[], byte[]> consumer(Map<String, String> settings) {
        Map<String, Object> all = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "client.id", "java-consumer",
            "auto.offset.reset", "none", "default.api.timeout.ms", "60000"));
        all.putAll(settings);
        return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** The i-th record of a series: keys, values and headers that are there, empty and null. */
    static ProducerRecord<byte[], byte[]> record(String topic, int partition, int i) {
        byte[] key = i % 5 == 4 ? null : bytes("key-" + i);
        byte[] value = i % 7 == 6 ? null : bytes(("value-" + i + " ").repeat(i * i));
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, partition, T0 + i * 1_000L, key, value);
        for (int header = 0; header < i % 3; header++) {
            record.headers().add("same", bytes("header-" + header));
        }
        if (i % 4 == 3) {
            record.headers().add("null", null).add("empty", new byte[0]);
        }
        return record;
    }

    interface Condition {
        boolean isMet() throws Exception;
    }

    /** Waits until a condition is met. */
    static void await(String what, Condition condition) throws Exception {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!condition.isMet()) {
            if (System.nanoTime() > deadline) {
                giveUp(what);
            }
            Thread.sleep(20);
        }
    }

    /** Ends the script: two brokers are not alike because both are waited for in vain. */
    static void giveUp(String what) {
        System.err.println("waited " + PATIENCE + " in vain for " + what);
        System.exit(3);
    }

    /** A controller's answer may come before the broker has taken the change over. */
    void settle() {
        settle(admin);
    }

    /** Scripts that run at the same time must not take another's change for their own. */
    private static final String MARKER = "settled-" + ProcessHandle.current().pid();
    private static int markers;

    /**
     * Waits until the only broker has applied every change before this call. It applies changes in order, but one after
     * the other to its parts. A second change that is made when a first one is seen belongs to a later pass, so
     * when it is seen, the pass of the first one has ended.
     */
    static void settle(Admin admin) {
        ConfigResource marker = new ConfigResource(ConfigResource.Type.GROUP, MARKER);
        String setting = "consumer.session.timeout.ms";
        for (int pass = 0; pass < 2; pass++) {
            String value = String.valueOf(45_000 + ++markers);
            get(admin.incrementalAlterConfigs(Map.of(marker, List.of(
                new AlterConfigOp(new ConfigEntry(setting, value), AlterConfigOp.OpType.SET)))).all());
            long end = System.nanoTime() + PATIENCE.toNanos();
            while (!value.equals(get(admin.describeConfigs(List.of(marker)).all()).get(marker).get(setting).value())) {
                if (System.nanoTime() > end) {
                    giveUp("a change to be applied");
                }
                LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(20));
            }
        }
    }

    interface Step {
        Object run() throws Exception;
    }

    static void step(String name, Step step) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("step", name);
        line.put("outcome", outcome(step));
        try {
            System.out.println(JSON.writeValueAsString(line));
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    static Object outcome(Step step) {
        try {
            return step.run();
        } catch (Exception error) {
            Throwable root = rootOf(error);
            return "! " + root.getClass().getSimpleName() + ": " + root.getMessage();
        }
    }

    static Throwable rootOf(Throwable error) {
        while ((error instanceof ExecutionException || error instanceof CompletionException
            || error.getClass() == RuntimeException.class) && error.getCause() != null) {
            error = error.getCause();
        }
        return error;
    }

    /** Whether this version of Kafka has that class. */
    static boolean isThere(String name) {
        try {
            Class.forName(name);
            return true;
        } catch (ClassNotFoundException error) {
            return false;
        }
    }

    /** Settings of Kafka 4.4, which Ottla shows and an older Kafka that it is compared with does not have. */
    static final Set<String> SINCE_KAFKA_4_4 =
        isThere("org.apache.kafka.clients.admin.UnregisterControllerResult") ? Set.of() : Set.of(
        "errors.deadletterqueue.auto.create.topics.enable", "errors.deadletterqueue.group.enable",
        "errors.deadletterqueue.topic.name.prefix", "group.streams.assignors",
        "group.streams.rack.aware.assignment.tags", "group.streams.topology.description.plugin.class",
        "log.remote.copy.lag.bytes", "log.remote.copy.lag.ms", "max.decompressed.message.bytes",
        "remote.copy.lag.bytes", "remote.copy.lag.ms", "sasl.oauthbearer.allow.unverified.audience",
        "sasl.oauthbearer.allow.unverified.issuer", "streams.assignor.name", "streams.rack.aware.assignment.tags");

    static <T> T get(Future<T> future) {
        try {
            return future.get(PATIENCE.toSeconds(), TimeUnit.SECONDS);
        } catch (InterruptedException | ExecutionException | TimeoutException error) {
            throw new RuntimeException(error);
        }
    }

    static Map<String, String> texts(Map<?, ?> map) {
        Map<String, String> texts = new TreeMap<>();
        map.forEach((key, value) -> texts.put(String.valueOf(key), String.valueOf(value)));
        return texts;
    }

    static List<String> sorted(Collection<?> values) {
        return values == null ? List.of() : values.stream().map(String::valueOf).sorted().toList();
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }

    static String checksum(byte[] bytes) {
        if (bytes == null) {
            return null;
        }
        CRC32 crc = new CRC32();
        crc.update(bytes);
        return bytes.length + "/" + Long.toHexString(crc.getValue());
    }

    static ConsumerRecord<byte[], byte[]> first(Consumer<byte[], byte[]> consumer) {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (System.nanoTime() < deadline) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                return record;
            }
        }
        throw new IllegalStateException("nothing to read");
    }

    static Object recordShown(ConsumerRecord<byte[], byte[]> record) {
        List<String> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(header.key() + "=" + text(header.value()));
        }
        boolean isCreateTime = record.timestampType().name.equals("CreateTime");
        return Arrays.asList(record.offset(), isCreateTime ? record.timestamp() : "-", record.timestampType().name,
            text(record.key()), checksum(record.value()), headers, record.leaderEpoch().orElse(null));
    }
}
