import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Everything that a topic holds, as a consumer without a group sees it. */
final class Reading {
    private Reading() { }

    /** For each partition where it starts and ends and its records: offset, timestamp, digest, leader epoch. */
    static Object all(String bootstrap, String topic, int count, String isolation) {
        Map<String, Object> settings = Login.settings(bootstrap, "isolation.level", isolation,
            "auto.offset.reset", "none", "enable.auto.commit", "false", "max.poll.records", "5000",
            "default.api.timeout.ms", "20000", "fetch.max.wait.ms", "100");
        Map<Integer, Map<String, Object>> partitions = new TreeMap<>();
        try (Consumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> all = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                all.add(new TopicPartition(topic, i));
            }
            consumer.assign(all);
            Map<TopicPartition, Long> starts = consumer.beginningOffsets(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            Map<TopicPartition, List<Object>> records = new HashMap<>();
            Set<TopicPartition> unfinished = new HashSet<>();
            for (TopicPartition partition : all) {
                consumer.seek(partition, starts.get(partition));
                records.put(partition, new ArrayList<>());
                if (starts.get(partition) < ends.get(partition)) {
                    unfinished.add(partition);
                }
            }
            long deadline = System.nanoTime() + 60_000_000_000L;
            while (!unfinished.isEmpty()) {
                if (System.nanoTime() > deadline) {
                    TopicPartition partition = unfinished.iterator().next();
                    throw new IllegalStateException(partition + " stands at " + consumer.position(partition)
                        + " and should give records up to " + ends.get(partition));
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    records.get(new TopicPartition(record.topic(), record.partition())).add(Arrays.asList(
                        record.offset(), record.timestamp(),
                        Payload.digest(record.key(), record.value(), record.headers()),
                        record.leaderEpoch().orElse(-1)));
                }
                unfinished.removeIf(partition -> consumer.position(partition) >= ends.get(partition));
            }
            for (TopicPartition partition : all) {
                partitions.put(partition.partition(), Map.of("start", starts.get(partition), "end", ends.get(partition),
                    "records", records.get(partition)));
            }
        }
        return partitions;
    }
}
