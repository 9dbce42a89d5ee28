import java.time.Duration;
import java.util.*;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * One consumer that is in its group for as long as the process lives, over every change of hands, and commits after each
 * record set. Wherever it goes on, it must be between what it was told is committed and what it last tried to commit,
 * and it must be given every offset.
 */
final class Member implements ConsumerRebalanceListener {
    private final Consumer<byte[], byte[]> consumer;
    private final Map<TopicPartition, Long> next = new ConcurrentHashMap<>();
    private final Map<TopicPartition, Long> committed = new ConcurrentHashMap<>();
    private final Map<TopicPartition, Long> tried = new ConcurrentHashMap<>();
    private final List<String> wrong = Collections.synchronizedList(new ArrayList<>());
    private volatile long joined;
    private volatile long read;

    Member(String bootstrap, String group, String topic) {
        consumer = new KafkaConsumer<>(Login.settings(bootstrap, "group.id", group, "client.id", group,
            "auto.offset.reset", "earliest", "enable.auto.commit", "false", "reconnect.backoff.max.ms", "100",
            "retry.backoff.max.ms", "200"), new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(topic), this);
        Thread thread = new Thread(this::run, group);
        thread.setDaemon(true);
        thread.start();
    }

    private void run() {
        boolean isCommitDue = false;
        while (true) {
            try {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                    long expected = next.getOrDefault(partition, 0L);
                    if (record.offset() != expected) {
                        wrong.add("a member that is to go on at " + expected + " of " + partition + " was given "
                            + record.offset());
                    }
                    next.put(partition, record.offset() + 1);
                    read++;
                }
                isCommitDue |= !records.isEmpty();
                if (isCommitDue) {
                    Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                    next.forEach((partition, offset) -> offsets.put(partition, new OffsetAndMetadata(offset)));
                    tried.putAll(next);
                    consumer.commitSync(offsets, Duration.ofSeconds(1));
                    committed.putAll(next);
                    isCommitDue = false;
                }
            } catch (org.apache.kafka.common.errors.TimeoutException | CommitFailedException
                | org.apache.kafka.common.errors.RebalanceInProgressException error) {
                // The broker is away, or the group rebalances; this is committed again, with what is read meanwhile.
                Thread.onSpinWait();
            } catch (RuntimeException error) {
                wrong.add("a member of a group was ended by " + error);
                return;
            }
        }
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) { }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        joined++;
        for (TopicPartition partition : partitions) {
            long position = consumer.position(partition);
            long least = committed.getOrDefault(partition, 0L);
            long most = tried.getOrDefault(partition, 0L);
            if (position < least || position > most) {
                wrong.add("a member was put at " + position + " of " + partition + ", and between " + least + " and "
                    + most + " is committed");
            }
            next.put(partition, position);
        }
    }

    /** Waits until it has read up to these ends; answers with what went wrong since the last call. */
    Object caughtUp(Map<TopicPartition, Long> ends, long deadline) throws InterruptedException {
        while (!ends.entrySet().stream().allMatch(end ->
            committed.getOrDefault(end.getKey(), 0L) >= end.getValue()) && wrong.isEmpty()) {
            if (System.nanoTime() > deadline) {
                wrong.add("a member of a group stands at " + committed + " and the ends are " + ends);
                break;
            }
            Thread.sleep(10);
        }
        Map<String, Object> state = Map.of("wrong", List.copyOf(wrong), "joined", joined, "read", read);
        wrong.clear();
        return state;
    }
}
