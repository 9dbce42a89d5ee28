// The conformance script of streams groups (KIP-1071): `StreamsGroupsScript BOOTSTRAP`.
//
// A Kafka Streams application with group.protocol=streams, which partitions anew, counts into a store and joins in windows,
// runs as one instance, as two with standby replicas, and as one again; what it writes, and what an administrator is shown
// of it and may change, is compared. Then requests are sent as no client sends them (StreamsRequests), and groups are left
// behind for the comparison of the tools.

import java.io.IOException;
import java.nio.file.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.*;

public final class StreamsGroupsScript extends Script {
    private static final String APPLICATION = "streams-shop";
    static final String ORDERS = "streams-orders";
    private static final String PAYMENTS = "streams-payments";
    private static final String PAID = "streams-paid";
    private static final String REGIONS = "streams-regions";
    static final int PARTITIONS = 4;
    /** So many orders are written at a time. */
    private static final int BATCH = 60;

    private final GroupSettings groups = new GroupSettings(admin);
    private final Path folder;
    private int written;
    /** How many pairs have been joined, and how many orders counted. */
    private int pairs;
    private int counted;

    private StreamsGroupsScript(String bootstrap) throws IOException {
        super(bootstrap);
        folder = Files.createTempDirectory("streams-groups");
    }

    public static void main(String[] arguments) throws Exception {
        StreamsGroupsScript script = new StreamsGroupsScript(arguments[0]);
        script.setUp();
        script.application();
        script.afterwards();
        try (StreamsRequests requests = new StreamsRequests(script.bootstrap)) {
            requests.all();
            requests.leaveBehind();
        }
        script.admin.close();
        System.exit(0);
    }

    // ---- the application -------------------------------------------------------------------------------------------

    /** An instance of the application, with one thread. */
    private final class Instance implements AutoCloseable {
        final KafkaStreams streams;
        volatile String failure;

        Instance(String name, int port, Topology topology) {
            Properties settings = new Properties();
            settings.put("bootstrap.servers", bootstrap);
            settings.put("application.id", APPLICATION);
            settings.put("group.protocol", "streams");
            settings.put("client.id", name);
            settings.put("application.server", "localhost:" + port);
            settings.put("client.tag.zone", "zone-" + name);
            settings.put("state.dir", folder.resolve(name).toString());
            settings.put("commit.interval.ms", "100");
            settings.put("statestore.cache.max.bytes", "0");
            settings.put("dsl.store.suppliers.class",
                "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers");
            settings.put("default.key.serde", Serdes.StringSerde.class);
            settings.put("default.value.serde", Serdes.StringSerde.class);
            settings.put("auto.offset.reset", "earliest");
            streams = new KafkaStreams(topology, settings);
            streams.setUncaughtExceptionHandler(error -> {
                Throwable root = rootOf(error);
                failure = root.getClass().getSimpleName() + ": " + root.getMessage();
                return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
            });
            streams.start();
        }

        @Override
        public void close() {
            streams.close(PATIENCE);
        }
    }

    private static Topology topology() {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> orders = builder.stream(ORDERS);
        KStream<String, String> payments = builder.stream(PAYMENTS);
        orders.join(payments, (order, payment) -> order + ":" + payment,
            JoinWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(3), Duration.ofDays(1)),
            StreamJoined.<String, String, String>as("paid").withName("paid")).to(PAID);
        orders.map((customer, order) -> KeyValue.pair(order.split(" ")[0], order))
            .groupByKey(Grouped.as("region")).count(Materialized.as("regions"))
            .toStream().mapValues(String::valueOf).to(REGIONS);
        return builder.build();
    }

    private static Topology otherTopology() {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(ORDERS).to(PAID);
        return builder.build();
    }

    /** Orders, and for every second of them a payment half a second later. */
    private void write() {
        try (Producer<byte[], byte[]> producer = producer(Map.of())) {
            for (int end = written + BATCH; written < end; written++) {
                byte[] customer = bytes("customer-" + written % 7);
                long time = T0 + written * 10_000L;
                String region = List.of("north", "south", "east").get(written % 3);
                get(producer.send(new ProducerRecord<>(ORDERS, null, time, customer, bytes(region + " " + written))));
                counted++;
                if (written % 2 == 0) {
                    get(producer.send(new ProducerRecord<>(PAYMENTS, null, time + 500, customer, bytes("p" + written))));
                    pairs++;
                }
            }
        }
    }

    // ---- steps -----------------------------------------------------------------------------------------------------

    private void setUp() {
        step("topics and settings of the group", () -> {
            Map<String, String> keep = Map.of("retention.ms", "-1");
            get(admin.createTopics(List.of(ORDERS, PAYMENTS, PAID, REGIONS).stream()
                .map(topic -> new NewTopic(topic, PARTITIONS, (short) 1).configs(keep)).toList()).all());
            groups.set(APPLICATION, Map.of("streams.num.standby.replicas", "1", "streams.initial.rebalance.delay.ms", "0"));
            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, APPLICATION);
            return get(admin.describeConfigs(List.of(group)).all()).get(group).entries().stream()
                .filter(entry -> entry.name().startsWith("streams.") && !Script.SINCE_KAFKA_4_4.contains(entry.name()))
                .map(entry -> entry.name() + "=" + entry.value() + " " + entry.source()).sorted().toList();
        });
        for (Map.Entry<String, String> wrong : new TreeMap<>(Map.of("streams.num.standby.replicas", "3",
            "streams.heartbeat.interval.ms", "1", "streams.session.timeout.ms", "1", "streams.none", "1",
            "streams.initial.rebalance.delay.ms", "-1", "streams.assignment.interval.ms", "70000")).entrySet()) {
            step("setting " + wrong, () -> {
                groups.set(APPLICATION, Map.of(wrong.getKey(), wrong.getValue()));
                return "set";
            });
        }
    }

    private void application() throws InterruptedException {
        write();
        Instance first = new Instance("first", 7001, topology());
        step("the first instance is given all tasks", () -> assigned(1, 8, 0));
        step("internal topics", this::internalTopics);
        step("what it has written", this::output);
        step("topology as described", () -> description().subtopologies().stream().map(part -> part.subtopologyId() + " "
            + sorted(part.sourceTopics()) + " " + sorted(part.repartitionSinkTopics()) + " "
            + shown(part.repartitionSourceTopics()) + " " + shown(part.stateChangelogTopics())).sorted().toList());
        step("offsets are committed", this::offsets);

        Instance second = new Instance("second", 7002, topology());
        step("the second instance takes half, and standby replicas are kept", () -> assigned(2, 8, 8));
        step("who can be asked for what", () -> clients(first.streams));
        write();
        step("what both have written", this::output);
        step("offsets of both", this::offsets);
        refusals();

        second.close();
        step("the second instance has left", () -> assigned(1, 8, 0));
        write();
        step("what the first has written alone", this::output);
        step("offsets of the first alone", this::offsets);
        first.close();
        step("all have left", () -> {
            await(() -> description().members().isEmpty());
            StreamsGroupDescription found = description();
            return List.of(found.groupState(), found.members().size(), found.subtopologies().size());
        });
    }

    /** What an administrator may not do, and who may not join, while the application runs. */
    private void refusals() {
        TopicPartition partition = new TopicPartition(ORDERS, 0);
        step("offsets are not set while it runs", () ->
            get(admin.alterStreamsGroupOffsets(APPLICATION, Map.of(partition, new OffsetAndMetadata(0))).all()));
        step("offsets are not deleted while it runs", () ->
            get(admin.deleteStreamsGroupOffsets(APPLICATION, Set.of(partition)).all()));
        step("the group is not deleted while it runs", () -> get(admin.deleteStreamsGroups(List.of(APPLICATION)).all()));
        step("it is no group of consumers", () ->
            get(admin.describeConsumerGroups(List.of(APPLICATION)).all()).get(APPLICATION).groupState());
        step("it is no classic group", () ->
            get(admin.describeClassicGroups(List.of(APPLICATION)).all()).get(APPLICATION).state());
        step("it is no share group", () -> get(admin.listGroups(new ListGroupsOptions()
            .withTypes(Set.of(GroupType.STREAMS)).inGroupStates(Set.of(GroupState.STABLE))).all()).stream()
            .filter(found -> found.groupId().equals(APPLICATION))
            .map(found -> found.protocol() + " " + found.type().orElse(null)).toList());
        for (String protocol : List.of("classic", "consumer")) {
            step("a consumer of the " + protocol + " protocol does not join it", () -> {
                try (Consumer<byte[], byte[]> consumer = consumer(Map.of("group.id", APPLICATION,
                    "group.protocol", protocol))) {
                    consumer.subscribe(List.of(ORDERS));
                    return recordShown(first(consumer));
                }
            });
        }
        step("an instance with another topology does not join it", () -> {
            try (Instance other = new Instance("other", 7003, otherTopology())) {
                await(() -> other.failure != null);
                return other.failure;
            }
        });
    }

    /** The group without members: offsets are set back, the application goes on from there, and all of it is deleted. */
    private void afterwards() throws InterruptedException {
        step("offsets are set back", () -> {
            Map<TopicPartition, OffsetAndMetadata> beginning = new HashMap<>();
            for (int partition = 0; partition < PARTITIONS; partition++) {
                beginning.put(new TopicPartition(ORDERS, partition), new OffsetAndMetadata(0));
            }
            get(admin.alterStreamsGroupOffsets(APPLICATION, beginning).all());
            return texts(get(admin.listStreamsGroupOffsets(Map.of(APPLICATION, new ListStreamsGroupOffsetsSpec())).all())
                .get(APPLICATION));
        });
        counted += written;
        pairs *= 2;
        try (Instance again = new Instance("again", 7004, topology())) {
            step("the application again", () -> assigned(1, 8, 0));
            step("what it has written again", this::output);
        }
        await(() -> description().members().isEmpty());
        step("offsets are deleted", () -> {
            get(admin.deleteStreamsGroupOffsets(APPLICATION, Set.of(new TopicPartition(ORDERS, 0),
                new TopicPartition(PAYMENTS, 3))).all());
            return get(admin.listStreamsGroupOffsets(Map.of(APPLICATION, new ListStreamsGroupOffsetsSpec())).all())
                .get(APPLICATION).keySet().stream().map(String::valueOf).sorted().toList();
        });
        step("offsets of an unknown group", () ->
            get(admin.deleteStreamsGroupOffsets("streams-nobody", Set.of(new TopicPartition(ORDERS, 0))).all()));
        step("the group is deleted", () -> {
            get(admin.deleteStreamsGroups(List.of(APPLICATION)).all());
            return get(admin.listGroups().all()).stream().anyMatch(found -> found.groupId().equals(APPLICATION));
        });
        step("a group that is not there", () -> description().groupState());
        try (var files = Files.walk(folder)) {
            for (Path path : files.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(path);
            }
        } catch (IOException error) {
            System.err.println("left behind: " + error);
        }
    }

    // ---- what is shown ---------------------------------------------------------------------------------------------

    private StreamsGroupDescription description() {
        return get(admin.describeStreamsGroups(List.of(APPLICATION),
            new DescribeStreamsGroupsOptions().includeAuthorizedOperations(true)).all()).get(APPLICATION);
    }

    private static void await(BooleanSupplier condition) throws InterruptedException {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!isSoFar(condition)) {
            if (System.nanoTime() > deadline) {
                giveUp("what the next step shows");
            }
            Thread.sleep(100);
        }
    }

    /** A group that nobody has joined yet is not there. */
    private static boolean isSoFar(BooleanSupplier condition) {
        try {
            return condition.getAsBoolean();
        } catch (RuntimeException error) {
            return false;
        }
    }

    /** The members, once so many tasks are given to so many of them and none is to change hands. */
    private Object assigned(int members, int active, int standby) throws InterruptedException {
        int[] calm = {0};
        await(() -> {
            StreamsGroupDescription found = description();
            boolean isSettled = found.groupState() == GroupState.STABLE && found.members().size() == members
                && found.members().stream().allMatch(member -> member.assignment().equals(member.targetAssignment())
                    && member.memberEpoch() == found.groupEpoch())
                && found.members().stream().mapToInt(it -> size(it.assignment().activeTasks())).sum() == active
                && found.members().stream().mapToInt(it -> size(it.assignment().standbyTasks())).sum() == standby;
            calm[0] = isSettled ? calm[0] + 1 : 0;
            return calm[0] >= 3;
        });
        StreamsGroupDescription found = description();
        Set<String> given = new TreeSet<>();
        for (StreamsGroupMemberDescription member : found.members()) {
            for (StreamsGroupMemberAssignment.TaskIds tasks : member.assignment().activeTasks()) {
                tasks.partitions().forEach(partition -> given.add(tasks.subtopologyId() + "_" + partition));
            }
        }
        return Map.of("state", found.groupState(), "topology epoch", found.topologyEpoch(), "tasks", given,
            "coordinator", found.coordinator().id(), "operations", sorted(found.authorizedOperations()),
            "members", found.members().stream().map(member -> member.clientId() + " " + member.clientHost() + " "
                + member.instanceId() + " " + member.rackId() + " " + member.topologyEpoch() + " "
                + member.userEndpoint().map(it -> it.host() + " " + it.port()) + " " + member.clientTags() + " "
                + member.isClassic() + " " + size(member.assignment().activeTasks()) + " "
                + size(member.assignment().standbyTasks()) + " " + size(member.assignment().warmupTasks())).sorted()
                .toList());
    }

    private static int size(List<StreamsGroupMemberAssignment.TaskIds> tasks) {
        return tasks.stream().mapToInt(it -> it.partitions().size()).sum();
    }

    private static Map<String, String> shown(Map<String, StreamsGroupSubtopologyDescription.TopicInfo> topics) {
        return texts(topics.entrySet().stream().collect(Collectors.toMap(Map.Entry::getKey, topic ->
            topic.getValue().partitions() + " " + topic.getValue().replicationFactor() + " "
                + new TreeMap<>(topic.getValue().topicConfigs()))));
    }

    private Object internalTopics() {
        List<String> names = get(admin.listTopics().names()).stream().filter(name -> name.startsWith(APPLICATION)).toList();
        Map<String, String> shown = new TreeMap<>();
        get(admin.describeTopics(names).allTopicNames()).forEach((name, topic) -> {
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, name);
            shown.put(name, topic.partitions().size() + " " + topic.partitions().get(0).replicas().size() + " "
                + get(admin.describeConfigs(List.of(resource)).all()).get(resource).entries().stream()
                    .filter(entry -> entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG)
                    .map(entry -> entry.name() + "=" + entry.value()).sorted().toList());
        });
        return shown;
    }

    /** Each pair and how often, and the last count of each region, once there is as much as there should be. */
    private Object output() {
        Map<String, Integer> paid = new TreeMap<>();
        read(PAID, pairs).forEach(record -> paid.merge(text(record.value()), 1, Integer::sum));
        Map<String, Long> regions = new TreeMap<>();
        List<ConsumerRecord<byte[], byte[]>> counts = read(REGIONS, counted);
        counts.forEach(record -> regions.merge(text(record.key()), Long.parseLong(text(record.value())), Math::max));
        return Map.of("pairs", paid.size(), "times", new TreeSet<>(paid.values()), "checksum",
            checksum(bytes(paid.toString())), "counts", counts.size(), "regions", regions);
    }

    private List<ConsumerRecord<byte[], byte[]>> read(String topic, int expected) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        try (Consumer<byte[], byte[]> consumer = consumer(Map.of("auto.offset.reset", "earliest"))) {
            List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                .map(one -> new TopicPartition(topic, one.partition())).toList();
            consumer.assign(partitions);
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            // What is too much may come a little later.
            int emptyInRow = 0;
            while (records.size() < expected || emptyInRow < 3) {
                if (System.nanoTime() > deadline) {
                    giveUp(expected + " records of " + topic + ", of which there are " + records.size());
                }
                ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofMillis(100));
                emptyInRow = polled.isEmpty() ? emptyInRow + 1 : 0;
                polled.forEach(records::add);
            }
        }
        return records;
    }

    /** What is committed of each partition that is read, once that is all there is. */
    private Object offsets() throws InterruptedException {
        Map<TopicPartition, OffsetSpec> latest = new HashMap<>();
        for (String topic : List.of(ORDERS, PAYMENTS)) {
            for (int partition = 0; partition < PARTITIONS; partition++) {
                latest.put(new TopicPartition(topic, partition), OffsetSpec.latest());
            }
        }
        Map<TopicPartition, Long> ends = new HashMap<>();
        get(admin.listOffsets(latest).all()).forEach((partition, end) -> ends.put(partition, end.offset()));
        Map<String, String> shown = new TreeMap<>();
        await(() -> {
            Map<TopicPartition, OffsetAndMetadata> committed = get(admin.listStreamsGroupOffsets(
                Map.of(APPLICATION, new ListStreamsGroupOffsetsSpec())).all()).get(APPLICATION);
            shown.clear();
            committed.forEach((partition, offset) -> shown.put(partition.toString(), partition.topic().startsWith(APPLICATION)
                ? "of a topic within" : String.valueOf(offset.offset())));
            return ends.entrySet().stream().allMatch(end -> end.getValue() == 0
                || committed.containsKey(end.getKey()) && committed.get(end.getKey()).offset() == end.getValue());
        });
        return shown;
    }

    /** What an instance knows of all of them. */
    private static Object clients(KafkaStreams streams) throws InterruptedException {
        List<String> shown = new ArrayList<>();
        await(() -> {
            shown.clear();
            Collection<StreamsMetadata> clients = streams.metadataForAllStreamsClients();
            clients.forEach(client -> shown.add(client.hostInfo() + " " + client.topicPartitions().size() + " "
                + client.standbyTopicPartitions().size() + " " + new TreeSet<>(client.stateStoreNames())));
            Collections.sort(shown);
            return clients.size() == 2 && clients.stream().mapToInt(it -> it.topicPartitions().size()).sum() == 12
                && clients.stream().mapToInt(it -> it.standbyTopicPartitions().size()).sum() > 0;
        });
        return shown;
    }
}
