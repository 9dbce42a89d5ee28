import com.fasterxml.jackson.databind.JsonNode;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * One producer that writes in the background for as long as the process lives, over every change of hands: what it
 * sent while the broker was away it sends again, as producers do. It says what was acknowledged, and where.
 */
final class Writer {
    private final String name;
    private final List<TopicPartition> partitions = new ArrayList<>();
    private final int keys;
    private final int size;
    private final long pauseNanos;
    private final Random random;
    private final KafkaProducer<byte[], byte[]> producer;
    /** So that a broker that is away is not answered with a mountain. */
    private final Semaphore inFlight = new Semaphore(400);
    private final Semaphore running = new Semaphore(0);
    private volatile boolean isPaused = true;
    private volatile boolean isIdle = true;
    private List<Object> acknowledged = new ArrayList<>();
    private List<Object> refused = new ArrayList<>();

    Writer(String bootstrap, JsonNode command) {
        name = Workload.text(command, "name");
        for (JsonNode row : command.get("partitions")) {
            partitions.add(new TopicPartition(row.get(0).asText(), row.get(1).asInt()));
        }
        keys = command.get("keys").asInt();
        size = command.get("size").asInt();
        pauseNanos = 1_000_000_000L / Math.max(1, command.get("per_second").asInt());
        random = new Random(command.get("seed").asLong());
        Map<String, Object> settings = Login.settings(bootstrap, "client.id", name,
            "delivery.timeout.ms", "120000", "request.timeout.ms", "10000", "linger.ms", "5",
            "reconnect.backoff.max.ms", "100", "retry.backoff.max.ms", "200", "max.block.ms", "120000");
        settings.putAll(Workload.texts(command.get("settings")));
        producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        Thread thread = new Thread(this::run, name);
        thread.setDaemon(true);
        thread.start();
    }

    void resume() {
        if (isPaused) {
            isPaused = false;
            isIdle = false;
            running.release();
        }
    }

    void pause() {
        isPaused = true;
    }

    boolean settle(long deadline) throws InterruptedException {
        while (!isIdle || inFlight.availablePermits() < 400) {
            if (System.nanoTime() > deadline) {
                return false;
            }
            Thread.sleep(5);
        }
        return true;
    }

    /** What was acknowledged and refused since the last call. */
    synchronized Object taken() {
        Map<String, Object> taken = Map.of("acknowledged", acknowledged, "refused", refused);
        acknowledged = new ArrayList<>();
        refused = new ArrayList<>();
        return taken;
    }

    private void run() {
        for (long number = 0; ; number++) {
            if (isPaused) {
                producer.flush();
                isIdle = true;
                running.acquireUninterruptibly();
            }
            inFlight.acquireUninterruptibly();
            TopicPartition partition = partitions.get(random.nextInt(partitions.size()));
            ProducerRecord<byte[], byte[]> record =
                Payload.made(random, partition.topic(), partition.partition(), name, number, keys, size);
            try {
                producer.send(record, (metadata, error) -> answered(record, metadata, error));
            } catch (RuntimeException error) {
                answered(record, null, error);
            }
            java.util.concurrent.locks.LockSupport.parkNanos(pauseNanos);
        }
    }

    private synchronized void answered(ProducerRecord<byte[], byte[]> record, RecordMetadata metadata, Exception error) {
        long offset = error == null ? metadata.offset() : -1;
        // To a batch that it had already, a broker answers with the time of the batch, and not with this record's.
        boolean isStamped = record.topic().startsWith("append-time");
        Long timestamp = !isStamped ? record.timestamp() : error == null ? Long.valueOf(metadata.timestamp()) : null;
        (error == null ? acknowledged : refused).add(row(record, offset, timestamp,
            error == null ? "" : error.getClass().getSimpleName() + ": " + error.getMessage()));
        inFlight.release();
    }

    /** Topic, partition, offset, timestamp, digest, key, whether it is a tombstone, the complaint. */
    static List<Object> row(ProducerRecord<byte[], byte[]> record, long offset, Long timestamp, String complaint) {
        return Arrays.asList(record.topic(), record.partition(), offset, timestamp,
            Payload.digest(record.key(), record.value(), record.headers()),
            record.key() == null ? null : new String(record.key()), record.value() == null, complaint);
    }
}
