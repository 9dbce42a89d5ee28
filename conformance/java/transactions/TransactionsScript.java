// Transactions by the Java client and by requests that no client sends: compiled with the files beside it and run as
// `TransactionsScript BOOTSTRAP`. All steps are done at each level of `transaction.version`, from the highest down.

import java.time.Duration;
import java.util.*;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;

public final class TransactionsScript extends Script {
    private final String level;
    final String topic;
    private final TopicPartition first;
    private final TopicPartition second;

    private TransactionsScript(String bootstrap, int level) {
        super(bootstrap);
        this.level = "v" + level + " ";
        this.topic = "transactions-v" + level;
        this.first = new TopicPartition(topic, 0);
        this.second = new TopicPartition(topic, 1);
    }

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        for (int level = 2; level >= 0; level--) {
            TransactionsScript script = new TransactionsScript(bootstrap, level);
            script.setLevel(level);
            try (RequestSteps requests = new RequestSteps(script, level)) {
                if (level == 2) {
                    requests.beforeThereAreCoordinators();
                }
                script.ended();
                script.open();
                script.offsets();
                script.fenced();
                script.timedOut();
                script.refused();
                script.administered();
                requests.inits();
                requests.adds();
                requests.ends();
                requests.produces();
                requests.offsetCommits();
                requests.offsetCommitsOfMembers();
                requests.markers();
                requests.inspections();
                if (level == 0) {
                    requests.leaveHanging();
                }
            }
            script.admin.close();
        }
        System.exit(0);
    }

    private void named(String name, Step step) {
        step(level + name, step);
    }

    private void setLevel(int level) {
        named("level", () -> {
            if (level < 2) {
                get(admin.updateFeatures(Map.of("transaction.version", new FeatureUpdate((short) level,
                    FeatureUpdate.UpgradeType.SAFE_DOWNGRADE)), new UpdateFeaturesOptions()).all());
                settle();
            }
            get(admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1))).all());
            settle();
            return get(admin.describeFeatures().featureMetadata()).finalizedFeatures().get("transaction.version")
                == null ? "none" : get(admin.describeFeatures().featureMetadata()).finalizedFeatures()
                .get("transaction.version").maxVersionLevel();
        });
    }

    Producer<byte[], byte[]> transactional(String id, Map<String, String> settings) {
        Map<String, String> all = new HashMap<>(Map.of("transactional.id", id, "max.block.ms", "60000"));
        all.putAll(settings);
        return producer(all);
    }

    private Producer<byte[], byte[]> begun(String id, Map<String, String> settings) {
        Producer<byte[], byte[]> producer = transactional(id, settings);
        producer.initTransactions();
        producer.beginTransaction();
        return producer;
    }

    private ProducerRecord<byte[], byte[]> record(TopicPartition to, String value) {
        return new ProducerRecord<>(to.topic(), to.partition(), T0, bytes("k"), bytes(value));
    }

    /** What a reader of committed records has from each partition, and where it and everybody else ends. */
    Object seen() {
        List<Object> shown = new ArrayList<>();
        for (String isolation : List.of("read_committed", "read_uncommitted")) {
            try (Consumer<byte[], byte[]> consumer = consumer(Map.of("isolation.level", isolation))) {
                List<TopicPartition> both = List.of(first, second);
                consumer.assign(both);
                consumer.seekToBeginning(both);
                Map<TopicPartition, Long> ends = consumer.endOffsets(both);
                List<String> values = new ArrayList<>();
                long deadline = System.nanoTime() + PATIENCE.toNanos();
                while (both.stream().anyMatch(p -> consumer.position(p) < ends.get(p))) {
                    if (System.nanoTime() > deadline) {
                        giveUp("the records before " + ends + ", of which there are " + values);
                    }
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(50))) {
                        values.add(record.partition() + "/" + record.offset() + "=" + text(record.value()));
                    }
                }
                Collections.sort(values);
                shown.add(List.of(isolation, values, texts(ends)));
            }
        }
        return shown;
    }

    /** Markers follow the answer to the producer. */
    void awaitState(String id, String state) throws Exception {
        await("the state " + state + " of " + id, () -> describedState(id).equals(state));
    }

    private String describedState(String id) {
        try {
            return get(admin.describeTransactions(List.of(id)).description(id)).state().name();
        } catch (RuntimeException error) {
            return rootOf(error).getClass().getSimpleName();
        }
    }

    private void ended() {
        String id = topic + "-ended";
        named("commit", () -> {
            try (Producer<byte[], byte[]> producer = begun(id, Map.of())) {
                List<Long> offsets = new ArrayList<>();
                for (int i = 0; i < 3; i++) {
                    offsets.add(get(producer.send(record(first, "committed-" + i))).offset());
                }
                offsets.add(get(producer.send(record(second, "committed"))).offset());
                producer.commitTransaction();
                awaitState(id, "COMPLETE_COMMIT");
                return List.of(offsets, seen());
            }
        });
        named("abort", () -> {
            try (Producer<byte[], byte[]> producer = begun(id, Map.of())) {
                producer.send(record(first, "aborted"));
                producer.flush();
                producer.abortTransaction();
                awaitState(id, "COMPLETE_ABORT");
                return seen();
            }
        });
        named("many in a row", () -> {
            try (Producer<byte[], byte[]> producer = transactional(id, Map.of())) {
                producer.initTransactions();
                for (int i = 0; i < 20; i++) {
                    producer.beginTransaction();
                    producer.send(record(first, "row-" + i));
                    producer.send(record(second, "row-" + i));
                    if (i % 3 == 2) {
                        // What has not been sent by then is dropped.
                        producer.flush();
                        producer.abortTransaction();
                    } else {
                        producer.commitTransaction();
                    }
                }
                awaitState(id, "COMPLETE_COMMIT");
                return seen();
            }
        });
        named("empty transactions", () -> {
            try (Producer<byte[], byte[]> producer = begun(id, Map.of())) {
                producer.commitTransaction();
                producer.beginTransaction();
                producer.abortTransaction();
                producer.beginTransaction();
                producer.send(record(first, "after empty"));
                producer.commitTransaction();
                awaitState(id, "COMPLETE_COMMIT");
                return seen();
            }
        });
        named("closed without an end", () -> {
            try (Producer<byte[], byte[]> producer = begun(id, Map.of())) {
                get(producer.send(record(first, "left")));
            }
            awaitState(id, "COMPLETE_ABORT");
            return List.of(describedState(id), seen());
        });
    }

    private void open() {
        String id = topic + "-open";
        named("open", () -> {
            try (Producer<byte[], byte[]> producer = begun(id, Map.of("transaction.timeout.ms", "33000"))) {
                get(producer.send(record(first, "open")));
                try (Producer<byte[], byte[]> other = producer(Map.of())) {
                    get(other.send(record(first, "behind")));
                }
                TransactionDescription found = get(admin.describeTransactions(List.of(id)).description(id));
                Object described = List.of(found.coordinatorId(), found.state(), found.transactionTimeoutMs(),
                    found.transactionStartTimeMs().isPresent(), sorted(found.topicPartitions()));
                Object listed = get(admin.listTransactions().all()).stream()
                    .filter(one -> one.transactionalId().equals(id)).map(one -> one.state().name()).toList();
                Object producers = get(admin.describeProducers(List.of(first)).partitionResult(first)).activeProducers()
                    .stream().filter(one -> one.producerId() == found.producerId())
                    .map(one -> List.of(one.producerEpoch() == found.producerEpoch(), one.lastSequence(),
                        one.coordinatorEpoch().orElse(-1), one.currentTransactionStartOffset().isPresent())).toList();
                Object before = seen();
                producer.commitTransaction();
                awaitState(id, "COMPLETE_COMMIT");
                return List.of(described, listed, producers, before, seen());
            }
        });
        named("producers when all have ended", () -> {
            long producerId = get(admin.describeTransactions(List.of(id)).description(id)).producerId();
            return get(admin.describeProducers(List.of(first)).partitionResult(first)).activeProducers().stream()
                .filter(one -> one.producerId() == producerId)
                .map(one -> List.of(one.producerEpoch(), one.lastSequence(), one.coordinatorEpoch().orElse(-1),
                    one.currentTransactionStartOffset().orElse(-1))).toList();
        });
    }

    private void offsets() {
        String id = topic + "-offsets";
        String group = topic + "-group";
        named("offsets of a group", () -> {
            List<Object> shown = new ArrayList<>();
            try (Producer<byte[], byte[]> producer = transactional(id, Map.of());
                 Consumer<byte[], byte[]> consumer = consumer(Map.of("group.id", group,
                     "auto.offset.reset", "earliest", "isolation.level", "read_committed",
                     "enable.auto.commit", "false"))) {
                producer.initTransactions();
                consumer.subscribe(List.of(topic));
                ConsumerRecord<byte[], byte[]> one = first(consumer);
                TopicPartition from = new TopicPartition(one.topic(), one.partition());
                for (boolean commits : new boolean[] {false, true}) {
                    producer.beginTransaction();
                    producer.send(record(second, "copied"));
                    producer.sendOffsetsToTransaction(Map.of(from, new OffsetAndMetadata(one.offset() + 1, "m")),
                        consumer.groupMetadata());
                    shown.add(committed(group, false).size());
                    if (commits) {
                        producer.commitTransaction();
                    } else {
                        producer.abortTransaction();
                    }
                    awaitState(id, commits ? "COMPLETE_COMMIT" : "COMPLETE_ABORT");
                    shown.add(committed(group, true).values());
                }
                producer.beginTransaction();
                shown.add(outcome(() -> {
                    producer.sendOffsetsToTransaction(Map.of(from, new OffsetAndMetadata(7)),
                        new ConsumerGroupMetadata(group, 77, "stranger", Optional.empty()));
                    return "sent";
                }));
                producer.abortTransaction();
            }
            return shown;
        });
    }

    private Map<String, String> committed(String group, boolean stable) {
        return texts(get(admin.listConsumerGroupOffsets(group, new ListConsumerGroupOffsetsOptions()
            .requireStable(stable)).partitionsToOffsetAndMetadata()));
    }

    private void fenced() {
        String id = topic + "-fenced";
        named("fenced by a newer one", () -> {
            List<Object> shown = new ArrayList<>();
            try (Producer<byte[], byte[]> older = begun(id, Map.of())) {
                get(older.send(record(first, "fenced")));
                try (Producer<byte[], byte[]> newer = begun(id, Map.of())) {
                    awaitState(id, "EMPTY");
                    shown.add(kind(() -> get(older.send(record(first, "late"))).offset()));
                    shown.add(kind(() -> {
                        older.commitTransaction();
                        return "committed";
                    }));
                    get(newer.send(record(first, "of the newer")));
                    newer.commitTransaction();
                    awaitState(id, "COMPLETE_COMMIT");
                }
            }
            shown.add(seen());
            return shown;
        });
    }

    private void timedOut() {
        String id = topic + "-timed-out";
        named("timed out", () -> {
            List<Object> shown = new ArrayList<>();
            Producer<byte[], byte[]> producer = begun(id, Map.of("transaction.timeout.ms", "3000"));
            try (producer) {
                get(producer.send(record(first, "too slow")));
                awaitState(id, "COMPLETE_ABORT");
                shown.add(describedState(id));
                shown.add(kind(() -> get(producer.send(record(first, "too late"))).offset()));
                shown.add(kind(() -> {
                    producer.commitTransaction();
                    return "committed";
                }));
                shown.add(kind(() -> {
                    producer.abortTransaction();
                    return "aborted";
                }));
            }
            shown.add(seen());
            return shown;
        });
    }

    /** The message of such an error may name producer ids. */
    private static Object kind(Step step) {
        Object outcome = outcome(step);
        String text = String.valueOf(outcome);
        return text.startsWith("! ") ? text.substring(0, text.indexOf(':')) : outcome;
    }

    private void refused() {
        String id = topic + "-refused";
        named("a timeout that is too long", () -> {
            try (Producer<byte[], byte[]> producer = begun(id, Map.of("transaction.timeout.ms", "900001"))) {
                return "begun";
            }
        });
        if (level.equals("v2 ")) {
            // It says nothing about levels, and the client takes ten seconds to close such a producer.
            named("two-phase commit", () -> {
                try (Producer<byte[], byte[]> producer =
                         begun(id, Map.of("transaction.two.phase.commit.enable", "true"))) {
                    return "begun";
                }
            });
        }
        // On topics of their own: whether a partition that has refused its first record is part of the transaction, its
        // marker shows.
        named("a record that is too large", () -> {
            String small = topic + "-small";
            TopicPartition refusing = new TopicPartition(small, 0);
            get(admin.createTopics(List.of(new NewTopic(small, 1, (short) 1))).all());
            settle();
            List<Object> shown = new ArrayList<>();
            try (Producer<byte[], byte[]> producer = begun(id, Map.of("max.request.size", "4000000"))) {
                shown.add(kind(() -> get(producer.send(new ProducerRecord<>(small, 0, null, new byte[2_000_000])))));
                // With which of two exceptions depends on how far the producer's other thread is.
                shown.add(outcome(() -> {
                    producer.commitTransaction();
                    return "committed";
                }).toString().startsWith("! ") ? "not committed" : "committed");
                producer.abortTransaction();
                producer.beginTransaction();
                get(producer.send(record(first, "small enough")));
                producer.commitTransaction();
                awaitState(id, "COMPLETE_COMMIT");
            }
            shown.add(seen());
            try (Consumer<byte[], byte[]> consumer = consumer(Map.of())) {
                return Map.of("told", shown, "markers", consumer.endOffsets(List.of(refusing)).get(refusing));
            }
        });
        named("a topic that is deleted meanwhile", () -> {
            String gone = topic + "-gone";
            get(admin.createTopics(List.of(new NewTopic(gone, 1, (short) 1))).all());
            settle();
            try (Producer<byte[], byte[]> producer = begun(id, Map.of())) {
                get(producer.send(new ProducerRecord<>(gone, 0, null, bytes("x"))));
                get(producer.send(record(first, "beside what is gone")));
                get(admin.deleteTopics(List.of(gone)).all());
                settle();
                producer.commitTransaction();
                awaitState(id, "COMPLETE_COMMIT");
            }
            return List.of(describedState(id), seen());
        });
    }

    private void administered() {
        String id = topic + "-administered";
        named("fenced by an administrator", () -> {
            List<Object> shown = new ArrayList<>();
            try (Producer<byte[], byte[]> producer = begun(id, Map.of())) {
                get(producer.send(record(first, "administered")));
                get(admin.fenceProducers(List.of(id)).all());
                awaitState(id, "EMPTY");
                shown.add(describedState(id));
                shown.add(kind(() -> get(producer.send(record(first, "late"))).offset()));
            }
            shown.add(seen());
            return shown;
        });
        named("terminated by an administrator", () -> {
            List<Object> shown = new ArrayList<>();
            try (Producer<byte[], byte[]> producer = begun(id, Map.of())) {
                get(producer.send(record(first, "terminated")));
                shown.add(outcome(() -> get(admin.forceTerminateTransaction(id).result())));
                awaitState(id, "EMPTY");
                shown.add(describedState(id));
                shown.add(kind(() -> get(producer.send(record(first, "late"))).offset()));
            }
            shown.add(seen());
            return shown;
        });
        named("aborted in one partition", () -> {
            try (Producer<byte[], byte[]> producer = begun(id, Map.of())) {
                get(producer.send(record(second, "cut off")));
                TransactionDescription found = get(admin.describeTransactions(List.of(id)).description(id));
                AbortTransactionSpec spec = new AbortTransactionSpec(second, found.producerId(),
                    (short) found.producerEpoch(), 0);
                List<Object> shown = new ArrayList<>();
                shown.add(kind(() -> get(admin.abortTransaction(spec).all())));
                shown.add(seen());
                shown.add(kind(() -> {
                    producer.abortTransaction();
                    return "aborted";
                }));
                return shown;
            }
        });
    }
}
