// Share groups (KIP-932) by Kafka's share consumer, and by requests that it never sends: compiled with the files beside it
// and run as `ShareScript BOOTSTRAP`.
//
// What a member gets is decided by what it asked for when, so that records are there before they are asked for, and
// members ask one after the other. Locks last for seconds here, not half a minute.

import java.time.Duration;
import java.util.*;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public final class ShareScript extends Script {
    private static final String WIDE = "shares-wide";
    private static final String RELEASED = "shares-released";
    private static final String TIMED = "shares-timed";
    private static final String DIVIDED = "shares-divided";
    private static final String TRANSACTED = "shares-transacted";
    private static final String LATEST = "shares-latest";
    /** Parts of it pass between steps that have to come before it runs out: long against the pauses of a busy machine. */
    private static final long LOCK_MS = 8_000;

    private ShareScript(String bootstrap) {
        super(bootstrap);
    }

    public static void main(String[] arguments) throws Exception {
        ShareScript script = new ShareScript(arguments[0]);
        script.setUp();
        script.implicitly();
        script.explicitly();
        script.wrongly();
        script.timed();
        script.divided();
        script.transacted();
        script.begun();
        script.administered();
        try (ShareRequests requests = new ShareRequests(script.bootstrap)) {
            requests.all();
        }
        script.admin.close();
        System.exit(0);
    }

    // ---- what the steps are made of --------------------------------------------------------------------------------

    private ShareConsumer<byte[], byte[]> share(String group, String mode, Map<String, String> settings) {
        Map<String, Object> all = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "client.id", "java-share",
            "group.id", group, "share.acknowledgement.mode", mode, "default.api.timeout.ms", "60000"));
        all.putAll(settings);
        return new KafkaShareConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private ShareConsumer<byte[], byte[]> subscribed(String group, String mode, String... topics) {
        ShareConsumer<byte[], byte[]> consumer = share(group, mode, Map.of());
        consumer.subscribe(List.of(topics));
        return consumer;
    }

    private void configure(String group, String... settings) {
        List<AlterConfigOp> changes = new ArrayList<>();
        for (String setting : settings) {
            String[] parts = setting.split("=");
            changes.add(new AlterConfigOp(new ConfigEntry(parts[0], parts[1]), AlterConfigOp.OpType.SET));
        }
        get(admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, group), changes)).all());
    }

    private void produce(String topic, int from, int to) {
        try (Producer<byte[], byte[]> producer = producer(Map.of("linger.ms", "30000", "batch.size", "1000000"))) {
            for (int i = from; i < to; i++) {
                producer.send(new ProducerRecord<>(topic, 0, T0, null, bytes("v" + i)));
            }
        }
    }

    /** What the first poll gets that gets anything, in the order of the offsets. */
    private static List<ConsumerRecord<byte[], byte[]>> polled(ShareConsumer<byte[], byte[]> consumer, long patienceMs) {
        long deadline = System.nanoTime() + patienceMs * 1_000_000;
        do {
            List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
            consumer.poll(Duration.ofMillis(200)).forEach(records::add);
            if (!records.isEmpty()) {
                records.sort(Comparator.comparing(ConsumerRecord::offset));
                return records;
            }
        } while (System.nanoTime() < deadline);
        return List.of();
    }

    private static List<ConsumerRecord<byte[], byte[]>> polled(ShareConsumer<byte[], byte[]> consumer) {
        return polled(consumer, PATIENCE.toMillis());
    }

    /** Offsets, values and how often each was delivered. */
    private static Object shown(List<ConsumerRecord<byte[], byte[]>> records) {
        return records.stream().map(record -> record.offset() + " " + text(record.value()) + " delivery "
            + record.deliveryCount().map(String::valueOf).orElse("-")).toList();
    }

    private static Object committed(ShareConsumer<byte[], byte[]> consumer) {
        Map<String, String> shown = new TreeMap<>();
        consumer.commitSync().forEach((partition, error) -> shown.put(partition.topicPartition().toString(),
            error.map(it -> it.getClass().getSimpleName() + ": " + it.getMessage()).orElse("done")));
        return shown;
    }

    private static void acknowledge(ShareConsumer<byte[], byte[]> consumer, List<ConsumerRecord<byte[], byte[]>> records,
        AcknowledgeType type) {
        records.forEach(record -> consumer.acknowledge(record, type));
    }

    /** Of the wide topic a member may have been given records or not when it ends, and only then does it have offsets. */
    private Object offsets(String group) {
        return offsets(group, new ListShareGroupOffsetsSpec());
    }

    private Object offsets(String group, ListShareGroupOffsetsSpec which) {
        Map<String, String> shown = new TreeMap<>();
        get(admin.listShareGroupOffsets(Map.of(group, which)).partitionsToOffsetInfo(group)).forEach((partition, info) ->
            shown.put(partition.toString(), partition.topic().equals(WIDE) ? "there" : info == null ? "none"
                : info.startOffset() + " lag " + info.lag().map(String::valueOf).orElse("-")));
        return shown;
    }

    private boolean hasOffsets(String group, String topic) {
        return get(admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
            .partitionsToOffsetInfo(group)).keySet().stream().anyMatch(partition -> partition.topic().equals(topic));
    }

    private Object described(String group) {
        ShareGroupDescription found = get(admin.describeShareGroups(List.of(group),
            new DescribeShareGroupsOptions().includeAuthorizedOperations(true)).all()).get(group);
        return List.of(found.groupState().toString(), sorted(found.authorizedOperations()),
            found.members().stream().map(member -> member.clientId() + " " + member.host() + " " + member.rackId() + " "
                + sorted(member.assignment().topicPartitions()))
                .sorted().toList());
    }

    // ---- steps -----------------------------------------------------------------------------------------------------

    private void setUp() {
        step("set-up", () -> {
            Map<String, String> keep = Map.of("retention.ms", "-1");
            get(admin.createTopics(List.of(new NewTopic(MAIN, 1, (short) 1).configs(keep),
                new NewTopic(RELEASED, 1, (short) 1).configs(keep), new NewTopic(TIMED, 1, (short) 1).configs(keep),
                new NewTopic(DIVIDED, 1, (short) 1).configs(keep), new NewTopic(TRANSACTED, 1, (short) 1).configs(keep),
                new NewTopic(LATEST, 1, (short) 1).configs(keep), new NewTopic(WIDE, 3, (short) 1).configs(keep))).all());
            settle();
            String earliest = "share.auto.offset.reset=earliest";
            for (String group : List.of("implicit", "explicit", "wrong", "divided", "uncommitted", "described")) {
                configure(group, earliest);
            }
            configure("timed", earliest, "share.record.lock.duration.ms=" + LOCK_MS);
            configure("limited", earliest, "share.delivery.count.limit=2");
            configure("rigid", earliest, "share.renew.acknowledge.enable=false");
            configure("committed", earliest, "share.isolation.level=read_committed");
            configure("by-duration", "share.auto.offset.reset=by_duration:PT1H");
            settle();
            return "done";
        });
        step("group settings", () -> {
            Map<String, Object> shown = new TreeMap<>();
            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, "timed");
            get(admin.describeConfigs(List.of(group)).all()).get(group).entries().stream()
                .filter(entry -> entry.name().startsWith("share."))
                .forEach(entry -> shown.put(entry.name(), entry.value() + " " + entry.source()));
            return shown;
        });
        for (String setting : List.of("share.auto.offset.reset=soon", "share.auto.offset.reset=by_duration:-PT1H",
            "share.isolation.level=none", "share.record.lock.duration.ms=10", "share.record.lock.duration.ms=99999999",
            "share.delivery.count.limit=1", "share.delivery.count.limit=11", "share.heartbeat.interval.ms=1",
            "share.session.timeout.ms=1", "share.partition.max.record.locks=10", "share.no.such=1")) {
            step("group setting " + setting, () -> {
                configure("bad", setting);
                return "set";
            });
        }
    }

    private void implicitly() {
        step("implicit", () -> {
            produce(MAIN, 0, 10);
            try (ShareConsumer<byte[], byte[]> consumer = subscribed("implicit", "implicit", MAIN)) {
                Object first = shown(polled(consumer));
                // The next poll says that all of them are done.
                Object quiet = shown(polled(consumer, 300));
                produce(MAIN, 10, 14);
                Object second = shown(polled(consumer));
                return List.of(first, quiet, second, committed(consumer), committed(consumer),
                    String.valueOf(consumer.acquisitionLockTimeoutMs()));
            }
        });
        step("implicit: begins where it was", () -> {
            try (ShareConsumer<byte[], byte[]> consumer = subscribed("implicit", "implicit", MAIN)) {
                Object nothing = shown(polled(consumer, 600));
                produce(MAIN, 14, 15);
                return List.of(nothing, shown(polled(consumer)), consumer.subscription());
            }
        });
        step("implicit: the last ones are done when it closes", () -> offsets("implicit"));
    }

    private void explicitly() {
        produce(RELEASED, 0, 6);
        step("explicit", () -> {
            try (ShareConsumer<byte[], byte[]> consumer = subscribed("explicit", "explicit", RELEASED)) {
                List<ConsumerRecord<byte[], byte[]>> records = polled(consumer);
                Object first = shown(records);
                consumer.acknowledge(records.get(0));
                consumer.acknowledge(records.get(1), AcknowledgeType.RELEASE);
                consumer.acknowledge(records.get(2), AcknowledgeType.REJECT);
                acknowledge(consumer, records.subList(3, 5), AcknowledgeType.RELEASE);
                consumer.acknowledge(records.get(5), AcknowledgeType.ACCEPT);
                Object done = committed(consumer);
                records = polled(consumer);
                Object again = shown(records);
                acknowledge(consumer, records, AcknowledgeType.ACCEPT);
                return List.of(first, done, again, committed(consumer), shown(polled(consumer, 300)));
            }
        });
        step("explicit: what is not said is given back", () -> {
            produce(RELEASED, 6, 9);
            try (ShareConsumer<byte[], byte[]> consumer = subscribed("explicit", "explicit", RELEASED)) {
                consumer.acknowledge(polled(consumer).get(0));
            }
            try (ShareConsumer<byte[], byte[]> consumer = subscribed("explicit", "implicit", RELEASED)) {
                return List.of(shown(polled(consumer)), committed(consumer));
            }
        });
        step("explicit: delivered twice at most", () -> {
            try (ShareConsumer<byte[], byte[]> consumer = subscribed("limited", "explicit", RELEASED)) {
                List<Object> shown = new ArrayList<>();
                for (int round = 0; round < 3; round++) {
                    List<ConsumerRecord<byte[], byte[]>> records = polled(consumer, round < 2 ? PATIENCE.toMillis() : 600);
                    shown.add(shown(records));
                    acknowledge(consumer, records, AcknowledgeType.RELEASE);
                    shown.add(committed(consumer));
                }
                return shown;
            }
        });
        step("explicit: by the callback", () -> {
            produce(RELEASED, 9, 11);
            List<String> told = new ArrayList<>();
            try (ShareConsumer<byte[], byte[]> consumer = subscribed("explicit", "explicit", RELEASED)) {
                consumer.setAcknowledgementCommitCallback((offsets, error) -> offsets.forEach((partition, which) ->
                    told.add(partition.topicPartition() + " " + new TreeSet<>(which) + " " + error)));
                acknowledge(consumer, polled(consumer), AcknowledgeType.ACCEPT);
                consumer.commitAsync();
                await("the callback", () -> {
                    consumer.poll(Duration.ofMillis(100));
                    return !told.isEmpty();
                });
            }
            return told;
        });
    }

    private void wrongly() {
        step("wrong: does not say anything", () -> {
            try (ShareConsumer<byte[], byte[]> consumer = subscribed("wrong", "explicit", MAIN)) {
                polled(consumer);
                return shown(polled(consumer));
            }
        });
        step("wrong: of a record that it does not have", () -> {
            try (ShareConsumer<byte[], byte[]> consumer = subscribed("wrong", "explicit", MAIN)) {
                polled(consumer);
                consumer.acknowledge(MAIN, 0, 77, AcknowledgeType.ACCEPT);
                return "taken";
            }
        });
        step("wrong: says something implicitly", () -> {
            try (ShareConsumer<byte[], byte[]> consumer = subscribed("wrong", "implicit", MAIN)) {
                consumer.acknowledge(polled(consumer).get(0));
                return "taken";
            }
        });
        step("wrong: a topic that is not there", () -> {
            try (ShareConsumer<byte[], byte[]> consumer = subscribed("wrong", "implicit", "shares-nowhere")) {
                return shown(polled(consumer, 600));
            }
        });
        step("wrong: a group of consumers", () -> {
            try (Consumer<byte[], byte[]> consumer = consumer(Map.of("group.id", "implicit", "group.protocol", "consumer"))) {
                consumer.subscribe(List.of(MAIN));
                // It is refused with its first heartbeat.
                await("an assignment", () -> {
                    consumer.poll(Duration.ofMillis(100));
                    return !consumer.assignment().isEmpty();
                });
                return "let in";
            }
        });
    }

    private void timed() {
        produce(TIMED, 0, 3);
        step("timed: a lock runs out", () -> {
            try (ShareConsumer<byte[], byte[]> slow = subscribed("timed", "explicit", TIMED);
                ShareConsumer<byte[], byte[]> other = subscribed("timed", "explicit", TIMED)) {
                List<ConsumerRecord<byte[], byte[]>> records = polled(slow);
                Object first = shown(records);
                List<ConsumerRecord<byte[], byte[]>> taken = polled(other);
                acknowledge(slow, records, AcknowledgeType.ACCEPT);
                Object late = committed(slow);
                acknowledge(other, taken, AcknowledgeType.ACCEPT);
                return List.of(first, shown(taken), late, committed(other), String.valueOf(slow.acquisitionLockTimeoutMs()));
            }
        });
        step("timed: a lock is renewed", () -> {
            produce(TIMED, 3, 5);
            try (ShareConsumer<byte[], byte[]> slow = subscribed("timed", "explicit", TIMED);
                ShareConsumer<byte[], byte[]> other = subscribed("timed", "implicit", TIMED)) {
                List<ConsumerRecord<byte[], byte[]>> records = polled(slow);
                Thread.sleep(LOCK_MS / 2);
                acknowledge(slow, records, AcknowledgeType.RENEW);
                Object renewed = committed(slow);
                // Beyond the end of the first lock.
                Object nothing = shown(polled(other, LOCK_MS * 5 / 8));
                List<ConsumerRecord<byte[], byte[]>> again = polled(slow);
                acknowledge(slow, again, AcknowledgeType.ACCEPT);
                return List.of(shown(records), renewed, nothing, shown(again), committed(slow));
            }
        });
        step("timed: renewing is not allowed", () -> {
            try (ShareConsumer<byte[], byte[]> consumer = subscribed("rigid", "explicit", TIMED)) {
                acknowledge(consumer, polled(consumer), AcknowledgeType.RENEW);
                return committed(consumer);
            }
        });
    }

    private void divided() {
        produce(DIVIDED, 0, 12);
        Map<String, String> few = Map.of("share.acquire.mode", "record_limit", "max.poll.records", "4");
        step("divided: two have parts of a batch", () -> {
            try (ShareConsumer<byte[], byte[]> first = share("divided", "explicit", few);
                ShareConsumer<byte[], byte[]> second = share("divided", "explicit", few)) {
                first.subscribe(List.of(DIVIDED));
                second.subscribe(List.of(DIVIDED));
                List<ConsumerRecord<byte[], byte[]>> left = polled(first);
                List<ConsumerRecord<byte[], byte[]>> right = polled(second);
                Object members = described("divided");
                acknowledge(first, left, AcknowledgeType.RELEASE);
                Object released = committed(first);
                // What it may have been given ahead goes back too.
                first.close();
                Set<Long> done = new TreeSet<>();
                Set<String> again = new TreeSet<>();
                int got = right.size();
                while (!right.isEmpty()) {
                    right.stream().filter(record -> !done.add(record.offset()) || record.offset() < 4)
                        .forEach(record -> again.add(record.offset() + " " + record.deliveryCount()));
                    acknowledge(second, right, AcknowledgeType.ACCEPT);
                    second.commitSync();
                    right = polled(second, done.size() < 12 ? PATIENCE.toMillis() : 300);
                }
                return List.of(shown(left), got, members, released, done, again);
            }
        });
        step("divided: many records, each to one of two", () -> {
            produce(DIVIDED, 12, 1_012);
            Map<String, String> some = Map.of("max.poll.records", "50", "share.acquire.mode", "record_limit");
            List<Long> read = Collections.synchronizedList(new ArrayList<>());
            List<Thread> threads = new ArrayList<>();
            for (int member = 0; member < 2; member++) {
                Thread thread = new Thread(() -> {
                    try (ShareConsumer<byte[], byte[]> consumer = share("divided", "implicit", some)) {
                        consumer.subscribe(List.of(DIVIDED));
                        long deadline = System.nanoTime() + PATIENCE.toNanos();
                        while (read.size() < 1_000 && System.nanoTime() < deadline) {
                            consumer.poll(Duration.ofMillis(100)).forEach(record -> read.add(record.offset()));
                        }
                        // To close without it releases what the last poll gave, for the other to read again.
                        consumer.commitSync();
                    }
                });
                thread.start();
                threads.add(thread);
            }
            for (Thread thread : threads) {
                thread.join();
            }
            return List.of(read.size(), new TreeSet<>(read).size(), Collections.min(read), Collections.max(read));
        });
    }

    private void transacted() {
        step("transacted: written", () -> {
            try (Producer<byte[], byte[]> producer = producer(Map.of("transactional.id", "shares"))) {
                producer.initTransactions();
                for (int transaction = 0; transaction < 4; transaction++) {
                    producer.beginTransaction();
                    for (int i = 0; i < 2; i++) {
                        producer.send(new ProducerRecord<>(TRANSACTED, 0, T0, null, bytes("t" + transaction + i)));
                    }
                    producer.flush();
                    if (transaction == 1) {
                        producer.abortTransaction();
                    } else if (transaction < 3) {
                        producer.commitTransaction();
                    }
                }
                // The last one is open while they read.
                List<Object> shown = new ArrayList<>();
                for (String group : List.of("committed", "uncommitted")) {
                    try (ShareConsumer<byte[], byte[]> consumer = subscribed(group, "explicit", TRANSACTED)) {
                        List<ConsumerRecord<byte[], byte[]>> records = polled(consumer);
                        shown.add(shown(records));
                        acknowledge(consumer, records, AcknowledgeType.ACCEPT);
                        shown.add(committed(consumer));
                    }
                }
                producer.commitTransaction();
                return shown;
            }
        });
        step("transacted: committed after all", () -> {
            try (ShareConsumer<byte[], byte[]> consumer = subscribed("committed", "implicit", TRANSACTED)) {
                return shown(polled(consumer));
            }
        });
    }

    private void begun() {
        step("begun: at the end", () -> {
            produce(LATEST, 0, 3);
            try (ShareConsumer<byte[], byte[]> consumer = subscribed("latest", "implicit", LATEST)) {
                Object nothing = shown(polled(consumer, 600));
                // Where the end is, is found out some time after the member has joined: records are written until one of
                // them comes after that.
                List<ConsumerRecord<byte[], byte[]>> records = List.of();
                for (int next = 3; records.isEmpty() && next < 40; next++) {
                    produce(LATEST, next, next + 1);
                    records = polled(consumer, 600);
                }
                return List.of(nothing, records.get(0).offset() >= 3, records.get(0).deliveryCount().map(String::valueOf).orElse("-"));
            }
        });
        step("begun: an hour ago", () -> {
            try (Producer<byte[], byte[]> producer = producer(Map.of())) {
                get(producer.send(new ProducerRecord<>(WIDE, 1, System.currentTimeMillis() - 7_200_000, null,
                    bytes("long ago"))));
                get(producer.send(new ProducerRecord<>(WIDE, 1, System.currentTimeMillis() - 60_000, null,
                    bytes("a while ago"))));
            }
            try (ShareConsumer<byte[], byte[]> consumer = subscribed("by-duration", "implicit", WIDE)) {
                return shown(polled(consumer));
            }
        });
    }

    private void administered() {
        step("administered: listed", () -> get(admin.listGroups(new ListGroupsOptions()
            .withTypes(Set.of(GroupType.SHARE))).all()).stream().map(group -> group.groupId() + " " + group.protocol() + " "
            + group.type().orElse(null) + " " + group.groupState().orElse(null)).sorted().toList());
        step("administered: with a member", () -> {
            try (ShareConsumer<byte[], byte[]> consumer = subscribed("described", "implicit", MAIN, WIDE)) {
                // What it has of the one topic it gives back when it ends; of the other it may have had some before.
                for (int poll = 0; poll < 20 && polled(consumer).stream().noneMatch(it -> it.topic().equals(MAIN)); poll++) {
                }
                TopicPartition first = new TopicPartition(MAIN, 0);
                return Arrays.asList(described("described"),
                    outcome(() -> get(admin.alterShareGroupOffsets("described", Map.of(first, 1L)).all())),
                    outcome(() -> get(admin.deleteShareGroupOffsets("described", Set.of(MAIN)).all())),
                    outcome(() -> get(admin.deleteShareGroups(List.of("described")).all())));
            }
        });
        step("administered: described when it is gone", () -> described("described"));
        step("administered: offsets", () -> offsets("described"));
        step("administered: some offsets", () -> offsets("described", new ListShareGroupOffsetsSpec().topicPartitions(
            List.of(new TopicPartition(MAIN, 0), new TopicPartition("shares-never", 0)))));
        step("administered: offsets are set", () -> {
            Object done = outcome(() -> get(admin.alterShareGroupOffsets("described",
                Map.of(new TopicPartition(MAIN, 0), 12L)).all()));
            Object shown = offsets("described");
            try (ShareConsumer<byte[], byte[]> consumer = subscribed("described", "implicit", MAIN)) {
                return Arrays.asList(done, shown, shown(polled(consumer)));
            }
        });
        step("administered: offsets of what is not there are set", () -> Arrays.asList(
            outcome(() -> get(admin.alterShareGroupOffsets("described", Map.of(new TopicPartition(MAIN, 7), 1L)).all())),
            outcome(() -> get(admin.alterShareGroupOffsets("described",
                Map.of(new TopicPartition("shares-never", 0), 1L)).all()))));
        step("administered: a group is made by setting its offsets", () -> {
            get(admin.alterShareGroupOffsets("made", Map.of(new TopicPartition(MAIN, 0), 3L)).all());
            return List.of(offsets("made"), described("made"));
        });
        step("administered: offsets are deleted", () -> {
            get(admin.deleteShareGroupOffsets("described", Set.of(MAIN)).all());
            return offsets("described");
        });
        step("administered: offsets that are not there are deleted", () -> Arrays.asList(
            outcome(() -> get(admin.deleteShareGroupOffsets("described", Set.of(MAIN)).all())),
            outcome(() -> get(admin.deleteShareGroupOffsets("described", Set.of("shares-never")).all())),
            outcome(() -> get(admin.deleteShareGroupOffsets("nobody", Set.of(MAIN)).all()))));
        step("administered: a topic goes", () -> {
            get(admin.deleteTopics(List.of(WIDE)).all());
            await("the end of " + WIDE, () -> !get(admin.listTopics().names()).contains(WIDE)
                && !hasOffsets("described", WIDE) && !hasOffsets("by-duration", WIDE));
            return List.of(offsets("described"), offsets("by-duration"));
        });
        step("administered: groups are deleted", () -> {
            get(admin.deleteShareGroups(List.of("described", "made")).all());
            Object gone = outcome(() -> described("described"));
            Set<String> left = get(admin.listGroups().all()).stream().map(GroupListing::groupId)
                .collect(Collectors.toSet());
            return List.of(gone, left.contains("described"), left.contains("made"), offsets("made"),
                outcome(() -> get(admin.deleteShareGroups(List.of("nobody")).all())));
        });
        step("administered: a deleted group begins anew", () -> {
            try (ShareConsumer<byte[], byte[]> consumer = subscribed("described", "implicit", MAIN)) {
                return shown(polled(consumer));
            }
        });
        step("administered: unknown groups", () -> List.of(outcome(() -> described("nobody")),
            outcome(() -> offsets("nobody"))));
    }
}
