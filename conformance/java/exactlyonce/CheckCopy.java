import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.serialization.*;

/**
 * Reads what is committed in a topic, `CheckCopy BOOTSTRAP TOPIC SECONDS COUNT…`, until each partition has as many numbers as
 * it should, or so long as nothing has come for so many seconds, however long all of it takes. It prints everything that
 * is not the next number of its partition as `wrong: `, and what did not come as `missing: `. Seconds are counted in polls: one that
 * is held up with everybody else on the machine has not waited.
 */
public final class CheckCopy {
    private static final int MAX_FINDINGS = 20;
    private static final Duration POLL = Duration.ofMillis(200);
    private static final int POLLS_PER_SECOND = 5;
    /** What is there twice may come late. */
    private static final int POLLS_AT_THE_END = 3 * POLLS_PER_SECOND;

    public static void main(String[] arguments) {
        String topic = arguments[1];
        int patience = Integer.parseInt(arguments[2]) * POLLS_PER_SECOND;
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
            int polls = 0;
            while (polls < (Arrays.equals(next, wanted) ? POLLS_AT_THE_END : patience) && wrong < MAX_FINDINGS) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
                polls = records.isEmpty() ? polls + 1 : 0;
                for (ConsumerRecord<byte[], byte[]> record : records) {
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
        boolean isWhole = true;
        for (int partition = 0; partition < wanted.length; partition++) {
            if (next[partition] != wanted[partition]) {
                isWhole = false;
                System.out.println("missing: " + topic + "-" + partition + " ends with " + (next[partition] - 1)
                    + " at offset " + positions[partition] + ", and should with " + (wanted[partition] - 1));
            }
        }
        System.out.println("read " + Arrays.stream(next).sum());
        System.exit(wrong == 0 && isWhole ? 0 : 1);
    }
}
