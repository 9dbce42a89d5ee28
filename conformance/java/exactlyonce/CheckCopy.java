import java.time.Duration;
import java.util.*;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.serialization.*;

/**
 * Reads what is committed in a topic until each partition has as many numbers as it should, `CheckCopy BOOTSTRAP TOPIC
 * SECONDS COUNT…`, or for so many seconds, and prints everything that is not the next number of its partition.
 */
public final class CheckCopy {
    private static final int MAX_FINDINGS = 20;

    public static void main(String[] arguments) {
        String topic = arguments[1];
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(Long.parseLong(arguments[2]));
        long[] wanted = List.of(arguments).subList(3, arguments.length).stream().mapToLong(Long::parseLong).toArray();
        long[] next = new long[wanted.length];
        long[] positions = new long[wanted.length];
        int wrong = 0;
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0], "isolation.level", "read_committed",
            "auto.offset.reset", "earliest", "group.id", "check", "enable.auto.commit", "false");
        try (Consumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (int partition = 0; partition < wanted.length; partition++) {
                partitions.add(new TopicPartition(topic, partition));
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long quiet = System.nanoTime() + TimeUnit.SECONDS.toNanos(1);
            // A second of silence at the end: what is there twice may come late.
            while (System.nanoTime() < deadline && (System.nanoTime() < quiet || !Arrays.equals(next, wanted))) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    quiet = System.nanoTime() + TimeUnit.SECONDS.toNanos(1);
                    int partition = record.partition();
                    long found = Long.parseLong(new String(record.value()));
                    if (found != next[partition] && wrong++ < MAX_FINDINGS) {
                        System.out.println("wrong: " + topic + "-" + partition + " at offset " + record.offset()
                            + ": " + found + " in place of " + next[partition]);
                    }
                    next[partition] = found + 1;
                    positions[partition] = record.offset();
                }
            }
        }
        for (int partition = 0; partition < wanted.length; partition++) {
            if (next[partition] != wanted[partition]) {
                wrong++;
                System.out.println("wrong: " + topic + "-" + partition + " ends with " + (next[partition] - 1)
                    + " at offset " + positions[partition] + ", and should with " + (wanted[partition] - 1));
            }
        }
        System.out.println("read " + Arrays.stream(next).sum());
        System.exit(wrong == 0 ? 0 : 1);
    }
}
