// The Java client's conformance script: `java -cp JARS ClientScript.java BOOTSTRAP`.
//
// Every step prints one line of JSON, {"step": …, "outcome": …}, free of values that differ from run to run, so that
// the lines of two brokers can be compared one by one. An error is an outcome like any other: class and message.

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.zip.CRC32;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.*;

public final class ClientScript {
    /** Record timestamps are fixed; topics keep them with retention.ms=-1. */
    private static final long T0 = 1_700_000_000_000L;
    private static final ObjectMapper JSON =
        new ObjectMapper().configure(SerializationFeature.ORDER_MAP_ENTRIES_BY_KEYS, true);
    private static final String MAIN = "java-main";

    private final String bootstrap;
    private final Admin admin;

    private ClientScript(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "default.api.timeout.ms", "20000",
            "request.timeout.ms", "15000"));
    }

    public static void main(String[] arguments) throws Exception {
        ClientScript script = new ClientScript(arguments[0]);
        script.cluster();
        script.createTopics();
        script.describeTopics();
        script.describeConfigs();
        script.produce();
        script.refusedProduce();
        script.consumeAlone();
        script.offsets();
        script.positions();
        script.groups();
        script.groupAdministration();
        script.alterConfigs();
        script.createPartitions();
        script.deleteRecords();
        script.inspect();
        script.deleteTopics();
        script.admin.close();
        System.exit(0);
    }

    // ---- steps -----------------------------------------------------------------------------------------------------

    private void cluster() {
        step("cluster", () -> {
            DescribeClusterResult result =
                admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
            Map<String, Object> shown = new TreeMap<>();
            shown.put("clusterId", get(result.clusterId()));
            shown.put("controller", get(result.controller()).id());
            shown.put("nodes", get(result.nodes()).stream()
                .map(node -> List.of(node.id(), node.host(), String.valueOf(node.rack()), node.isFenced())).toList());
            shown.put("operations", sorted(get(result.authorizedOperations())));
            return shown;
        });
    }

    private void createTopics() {
        Map<String, String> keep = Map.of("retention.ms", "-1");
        create("main", new NewTopic(MAIN, 3, (short) 1).configs(keep));
        create("defaults", new NewTopic("java-defaults", Optional.empty(), Optional.empty()));
        create("append-time", new NewTopic("java-append-time", 1, (short) 1)
            .configs(Map.of("message.timestamp.type", "LogAppendTime")));
        create("compacted", new NewTopic("java-compacted", 1, (short) 1)
            .configs(Map.of("cleanup.policy", "compact", "segment.bytes", "1048576")));
        create("assigned", new NewTopic("java-assigned", Map.of(0, List.of(1), 1, List.of(1))));
        create("dotted", new NewTopic("java.dotted", 1, (short) 1));
        create("colliding", new NewTopic("java_dotted", 1, (short) 1));
        create("exists", new NewTopic(MAIN, 3, (short) 1));
        create("bad name", new NewTopic("java/slash", 1, (short) 1));
        create("dots", new NewTopic("..", 1, (short) 1));
        create("long name", new NewTopic("j".repeat(250), 1, (short) 1));
        create("no partitions", new NewTopic("java-zero", 0, (short) 1));
        create("too many replicas", new NewTopic("java-three", 1, (short) 3));
        create("no replicas", new NewTopic("java-none", 1, (short) 0));
        create("unknown broker", new NewTopic("java-unknown", Map.of(0, List.of(9))));
        create("gap in partitions", new NewTopic("java-gap", Map.of(0, List.of(1), 2, List.of(1))));
        create("replica twice", new NewTopic("java-twice", Map.of(0, List.of(1, 1))));
        create("bad setting", new NewTopic("java-bad", 1, (short) 1).configs(Map.of("retention.ms", "soon")));
        create("unknown setting", new NewTopic("java-bad", 1, (short) 1).configs(Map.of("no.such.key", "1")));
        create("setting out of range",
            new NewTopic("java-bad", 1, (short) 1).configs(Map.of("min.insync.replicas", "0")));
        step("create only validated", () -> {
            get(admin.createTopics(List.of(new NewTopic("java-validated", 1, (short) 1)),
                new CreateTopicsOptions().validateOnly(true)).all());
            settle();
            return get(admin.listTopics().names()).contains("java-validated");
        });
    }

    private void create(String what, NewTopic topic) {
        step("create " + what, () -> {
            CreateTopicsResult result = admin.createTopics(List.of(topic));
            Map<String, Object> shown = new TreeMap<>();
            shown.put("partitions", get(result.numPartitions(topic.name())));
            shown.put("replicas", get(result.replicationFactor(topic.name())));
            shown.put("set", get(result.config(topic.name())).entries().stream().filter(entry -> !entry.isDefault())
                .map(entry -> entry.name() + "=" + entry.value()).sorted().toList());
            return shown;
        });
    }

    private void describeTopics() {
        step("describe topics", () -> {
            Map<String, Object> shown = new TreeMap<>();
            DescribeTopicsOptions options = new DescribeTopicsOptions().includeAuthorizedOperations(true);
            get(admin.describeTopics(List.of(MAIN, "java-assigned", "java-defaults"), options).allTopicNames())
                .forEach((name, topic) -> shown.put(name, topicShown(topic)));
            return shown;
        });
        step("describe unknown topic", () -> get(admin.describeTopics(List.of("java-nobody")).allTopicNames()));
        step("list topics", this::ownTopics);
        step("describe topic by id", () -> {
            Uuid id = get(admin.describeTopics(List.of(MAIN)).allTopicNames()).get(MAIN).topicId();
            return get(admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds()).get(id).name();
        });
        step("describe unknown id", () ->
            get(admin.describeTopics(TopicCollection.ofTopicIds(List.of(new Uuid(1, 2)))).allTopicIds()));
    }

    private List<String> ownTopics() {
        return sorted(get(admin.listTopics().names()).stream().filter(name -> name.startsWith("java")).toList());
    }

    private static Object topicShown(TopicDescription topic) {
        return Map.of("internal", topic.isInternal(), "operations", sorted(topic.authorizedOperations()),
            "partitions", topic.partitions().stream().map(partition -> List.of(partition.partition(),
                partition.leader().id(), ids(partition.replicas()), ids(partition.isr()), ids(partition.elr()),
                ids(partition.lastKnownElr()))).toList());
    }

    private static List<Integer> ids(List<Node> nodes) {
        return nodes == null ? List.of() : nodes.stream().map(Node::id).toList();
    }

    private void describeConfigs() {
        step("describe topic settings", () -> settings(ConfigResource.Type.TOPIC, MAIN));
        step("describe broker settings", () -> settings(ConfigResource.Type.BROKER, "1"));
        step("describe unknown topic's settings", () -> settings(ConfigResource.Type.TOPIC, "java-nobody"));
    }

    /** Values that the node was started with name its folder and ports; their names and kinds are compared all the same. */
    private Object settings(ConfigResource.Type type, String name) {
        ConfigResource resource = new ConfigResource(type, name);
        Config config = get(admin.describeConfigs(List.of(resource),
            new DescribeConfigsOptions().includeSynonyms(true)).all()).get(resource);
        Map<String, Object> shown = new TreeMap<>();
        for (ConfigEntry entry : config.entries()) {
            boolean isStatic = entry.source() == ConfigEntry.ConfigSource.STATIC_BROKER_CONFIG;
            shown.put(entry.name(), List.of(isStatic ? "-" : String.valueOf(entry.value()), entry.source(), entry.type(),
                entry.isReadOnly() ? "read-only" : "", entry.isSensitive() ? "sensitive" : "",
                entry.synonyms().stream().map(synonym -> synonym.name() + " " + synonym.source()).toList()));
        }
        return shown;
    }

    private void produce() {
        for (String acks : List.of("1", "all", "0")) {
            for (String compression : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
                // What was not acknowledged may still be on its way: it gets a partition of its own.
                int partition = acks.equals("0") ? 1 : 0;
                step("produce acks=" + acks + " " + compression, () -> {
                    List<Object> shown = new ArrayList<>();
                    try (Producer<byte[], byte[]> producer = producer(Map.of("acks", acks,
                        "compression.type", compression, "linger.ms", "1000", "enable.idempotence", "false"))) {
                        List<Future<RecordMetadata>> sent = new ArrayList<>();
                        for (int i = 0; i < 10; i++) {
                            sent.add(producer.send(record(MAIN, partition, i)));
                        }
                        producer.flush();
                        for (Future<RecordMetadata> one : sent) {
                            RecordMetadata metadata = get(one);
                            shown.add(List.of(metadata.partition(), metadata.offset(), metadata.timestamp()));
                        }
                    }
                    return shown;
                });
            }
        }
        step("produce idempotently", () -> {
            List<Long> offsets = new ArrayList<>();
            try (Producer<byte[], byte[]> producer = producer(Map.of("acks", "all", "enable.idempotence", "true"))) {
                for (int i = 0; i < 20; i++) {
                    offsets.add(get(producer.send(record(MAIN, 2, i))).offset());
                }
            }
            return offsets;
        });
        step("produce with append time", () -> {
            long before = System.currentTimeMillis();
            try (Producer<byte[], byte[]> producer = producer(Map.of())) {
                RecordMetadata metadata = get(producer.send(record("java-append-time", 0, 0)));
                return List.of(metadata.offset(), Math.abs(metadata.timestamp() - before) < 60_000);
            }
        });
        step("produce creates the topic", () -> {
            try (Producer<byte[], byte[]> producer = producer(Map.of())) {
                long offset = get(producer.send(new ProducerRecord<>("java-auto", bytes("k"), bytes("v")))).offset();
                return List.of(offset, topicShown(get(admin.describeTopics(List.of("java-auto")).allTopicNames())
                    .get("java-auto")));
            }
        });
    }

    private void refusedProduce() {
        step("produce over the broker's limit", () -> {
            try (Producer<byte[], byte[]> producer = producer(Map.of("max.request.size", "4000000"))) {
                return get(producer.send(new ProducerRecord<>(MAIN, 2, null, new byte[2_000_000]))).offset();
            }
        });
        step("produce a record of the future", () -> {
            try (Producer<byte[], byte[]> producer = producer(Map.of())) {
                long late = System.currentTimeMillis() + Duration.ofDays(10).toMillis();
                return get(producer.send(new ProducerRecord<>(MAIN, 2, late, bytes("k"), bytes("v")))).offset();
            } catch (RuntimeException error) {
                // The message names the time.
                return rootOf(error).getClass().getSimpleName();
            }
        });
        step("produce without a key to a compacted topic", () -> {
            try (Producer<byte[], byte[]> producer = producer(Map.of())) {
                return get(producer.send(new ProducerRecord<>("java-compacted", 0, T0, null, bytes("v")))).offset();
            }
        });
        step("produce to a bad name", () -> {
            try (Producer<byte[], byte[]> producer = producer(Map.of())) {
                return get(producer.send(new ProducerRecord<>("java bad", bytes("v")))).offset();
            }
        });
        step("produce to a partition that is not there", () -> {
            try (Producer<byte[], byte[]> producer = producer(Map.of("max.block.ms", "1500"))) {
                return get(producer.send(new ProducerRecord<>(MAIN, 7, null, bytes("v")))).offset();
            }
        });
    }

    private void consumeAlone() {
        for (int partition = 0; partition < 3; partition++) {
            TopicPartition from = new TopicPartition(MAIN, partition);
            int expected = new int[] {100, 50, 20}[partition];
            step("consume partition " + partition, () -> consumed(from, expected, Map.of()));
        }
        step("consume in small pieces", () -> consumed(new TopicPartition(MAIN, 0), 100,
            Map.of("max.partition.fetch.bytes", "100", "fetch.max.bytes", "100", "max.poll.records", "3")).hashCode());
        step("consume committed only", () -> consumed(new TopicPartition(MAIN, 2), 20,
            Map.of("isolation.level", "read_committed")).size());
        step("consume append time", () -> consumed(new TopicPartition("java-append-time", 0), 1, Map.of()).size());
    }

    private List<Object> consumed(TopicPartition from, int expected, Map<String, String> settings) {
        List<Object> shown = new ArrayList<>();
        try (Consumer<byte[], byte[]> consumer = consumer(settings)) {
            consumer.assign(List.of(from));
            consumer.seekToBeginning(List.of(from));
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(15);
            while (shown.size() < expected && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    shown.add(recordShown(record));
                }
            }
        }
        return shown;
    }

    private static Object recordShown(ConsumerRecord<byte[], byte[]> record) {
        List<String> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(header.key() + "=" + text(header.value()));
        }
        boolean isCreateTime = record.timestampType().name.equals("CreateTime");
        return Arrays.asList(record.offset(), isCreateTime ? record.timestamp() : "-", record.timestampType().name,
            text(record.key()), checksum(record.value()), headers, record.leaderEpoch().orElse(null));
    }

    private void offsets() {
        List<TopicPartition> all = IntStream.range(0, 3).mapToObj(p -> new TopicPartition(MAIN, p)).toList();
        Map<String, OffsetSpec> specs = new LinkedHashMap<>();
        specs.put("earliest", OffsetSpec.earliest());
        specs.put("latest", OffsetSpec.latest());
        specs.put("max timestamp", OffsetSpec.maxTimestamp());
        specs.put("earliest local", OffsetSpec.earliestLocal());
        specs.put("latest tiered", OffsetSpec.latestTiered());
        specs.put("earliest pending upload", OffsetSpec.earliestPendingUpload());
        specs.put("before all", OffsetSpec.forTimestamp(0));
        specs.put("between", OffsetSpec.forTimestamp(T0 + 4_500));
        specs.put("exactly", OffsetSpec.forTimestamp(T0 + 9_000));
        specs.put("after all", OffsetSpec.forTimestamp(T0 + 1_000_000));
        specs.forEach((name, spec) -> step("offsets " + name, () -> {
            Map<String, Object> shown = new TreeMap<>();
            get(admin.listOffsets(all.stream().collect(Collectors.toMap(p -> p, p -> spec))).all()).forEach((p, found) ->
                shown.put(p.toString(), List.of(found.offset(), found.timestamp(), found.leaderEpoch().orElse(-1))));
            return shown;
        }));
        step("offsets committed only", () -> {
            ListOffsetsOptions committed = new ListOffsetsOptions(IsolationLevel.READ_COMMITTED);
            return get(admin.listOffsets(Map.of(all.get(0), OffsetSpec.latest()), committed).all()).get(all.get(0))
                .offset();
        });
        step("consumer's offsets", () -> {
            try (Consumer<byte[], byte[]> consumer = consumer(Map.of())) {
                return List.of(texts(consumer.beginningOffsets(all)), texts(consumer.endOffsets(all)),
                    texts(consumer.offsetsForTimes(Map.of(all.get(0), T0 + 5_000L, all.get(1), T0 + 1_000_000L))),
                    consumer.partitionsFor(MAIN).size(), consumer.listTopics().containsKey(MAIN));
            }
        });
    }

    private void positions() {
        TopicPartition partition = new TopicPartition(MAIN, 0);
        step("seek by time", () -> {
            try (Consumer<byte[], byte[]> consumer = consumer(Map.of())) {
                consumer.assign(List.of(partition));
                OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, T0 + 7_000)).get(partition);
                consumer.seek(partition, found.offset());
                return List.of(found.offset(), found.timestamp(), recordShown(first(consumer)));
            }
        });
        for (String reset : List.of("none", "earliest", "latest")) {
            step("seek past the end, reset " + reset, () -> {
                try (Consumer<byte[], byte[]> consumer = consumer(Map.of("auto.offset.reset", reset))) {
                    consumer.assign(List.of(partition));
                    consumer.seek(partition, 1_000);
                    consumer.poll(Duration.ofMillis(600));
                    return consumer.position(partition);
                }
            });
        }
        step("seek to the end", () -> {
            try (Consumer<byte[], byte[]> consumer = consumer(Map.of())) {
                consumer.assign(List.of(partition));
                consumer.seekToEnd(List.of(partition));
                return List.of(consumer.position(partition), consumer.poll(Duration.ofMillis(300)).count(),
                    consumer.currentLag(partition).orElse(-1));
            }
        });
    }

    private static ConsumerRecord<byte[], byte[]> first(Consumer<byte[], byte[]> consumer) {
        for (int i = 0; i < 100; i++) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                return record;
            }
        }
        throw new IllegalStateException("nothing to read");
    }

    private void groups() {
        for (String assignor : List.of("RangeAssignor", "RoundRobinAssignor", "StickyAssignor",
            "CooperativeStickyAssignor")) {
            String group = "java-" + assignor;
            Map<String, String> settings = Map.of("group.id", group, "auto.offset.reset", "earliest",
                "partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor,
                "heartbeat.interval.ms", "200", "enable.auto.commit", "false");
            Member[] members = new Member[3];
            step("group " + assignor + ": first member", () -> {
                members[0] = new Member(settings, MAIN);
                return sizes(group, members, 3);
            });
            step("group " + assignor + ": second member", () -> {
                members[1] = new Member(settings, MAIN);
                return sizes(group, members, 3);
            });
            step("group " + assignor + ": a member with a name of its own", () -> {
                Map<String, String> named = new HashMap<>(settings);
                named.put("group.instance.id", "java-static");
                members[2] = new Member(named, MAIN);
                return sizes(group, members, 3);
            });
            step("group " + assignor + ": described", () -> groupShown(group));
            step("group " + assignor + ": first member leaves", () -> {
                members[0].close();
                members[0] = null;
                return sizes(group, members, 3);
            });
            step("group " + assignor + ": all leave", () -> {
                // The named member does not leave when it closes; the rebalance that the other one's leaving starts waits
                // for it until its session ends.
                members[2].close();
                members[1].close();
                return groupShown(group);
            });
        }
    }

    /** The numbers of partitions per member, once all partitions are given out and no two members hold the same. */
    private Object sizes(String group, Member[] members, int partitions) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        List<Integer> sizes = List.of();
        int calm = 0;
        while (System.nanoTime() < deadline) {
            List<Member> present = Arrays.stream(members).filter(Objects::nonNull).toList();
            List<Integer> now = present.stream().map(member -> member.assigned.size()).sorted().toList();
            long different = present.stream().flatMap(member -> member.assigned.stream()).distinct().count();
            boolean isSpread = now.stream().mapToInt(n -> n).sum() == partitions && different == partitions
                && now.get(0) >= partitions / present.size();
            calm = isSpread && now.equals(sizes) ? calm + 1 : 0;
            sizes = now;
            if (calm >= 3) {
                return sizes;
            }
            Thread.sleep(100);
        }
        return "not settled: " + sizes + " " + groupShown(group);
    }

    private Object groupShown(String group) {
        ConsumerGroupDescription found = get(admin.describeConsumerGroups(List.of(group),
            new DescribeConsumerGroupsOptions().includeAuthorizedOperations(true)).all()).get(group);
        List<String> members = found.members().stream().map(member -> member.clientId() + " "
            + member.groupInstanceId().orElse("-") + " " + member.host() + " "
            // Which member holds more than another is chance.
            + (found.groupState() == GroupState.STABLE ? member.assignment().topicPartitions().size() : "-"))
            .sorted().toList();
        return Map.of("state", found.groupState(), "assignor", found.partitionAssignor(), "type", found.type(),
            "simple", found.isSimpleConsumerGroup(), "coordinator", found.coordinator().id(), "members", members,
            "operations", sorted(found.authorizedOperations()));
    }

    private void groupAdministration() {
        String group = "java-committing";
        TopicPartition p0 = new TopicPartition(MAIN, 0);
        TopicPartition p1 = new TopicPartition(MAIN, 1);
        Map<String, String> settings = Map.of("group.id", group, "auto.offset.reset", "earliest",
            "enable.auto.commit", "false", "heartbeat.interval.ms", "200");
        step("commit", () -> {
            try (Consumer<byte[], byte[]> consumer = consumer(settings)) {
                consumer.subscribe(List.of(MAIN));
                first(consumer);
                consumer.commitSync(Map.of(p0, new OffsetAndMetadata(7, Optional.of(0), "seven"),
                    p1, new OffsetAndMetadata(3)));
                return texts(consumer.committed(Set.of(p0, p1, new TopicPartition(MAIN, 2))));
            }
        });
        step("commit with too much metadata", () -> {
            try (Consumer<byte[], byte[]> consumer = consumer(settings)) {
                consumer.assign(List.of(p0));
                consumer.commitSync(Map.of(p0, new OffsetAndMetadata(8, "x".repeat(5000))));
                return "committed";
            }
        });
        step("commit to an unknown topic", () -> {
            try (Consumer<byte[], byte[]> consumer = consumer(settings)) {
                TopicPartition unknown = new TopicPartition("java-nobody-commits", 0);
                consumer.commitSync(Map.of(unknown, new OffsetAndMetadata(8)), Duration.ofSeconds(1));
                return "committed";
            }
        });
        step("resume at the commit", () -> {
            try (Consumer<byte[], byte[]> consumer = consumer(settings)) {
                consumer.assign(List.of(p0));
                return recordShown(first(consumer));
            }
        });
        step("list committed offsets", () ->
            texts(get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata())));
        step("alter committed offsets", () -> {
            get(admin.alterConsumerGroupOffsets(group, Map.of(p0, new OffsetAndMetadata(2),
                p1, new OffsetAndMetadata(1, "one"))).all());
            return texts(get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()));
        });
        step("alter and delete in a group with members", () -> {
            Member member = new Member(settings, MAIN);
            Object sizes = sizes(group, new Member[] {member}, 3);
            List<Object> shown = new ArrayList<>(List.of(sizes));
            shown.add(outcome(() -> get(admin.alterConsumerGroupOffsets(group,
                Map.of(p0, new OffsetAndMetadata(0))).all())));
            shown.add(outcome(() -> get(admin.deleteConsumerGroupOffsets(group, Set.of(p0)).all())));
            shown.add(outcome(() -> get(admin.deleteConsumerGroups(List.of(group)).all())));
            member.close();
            return shown;
        });
        step("delete committed offsets", () -> {
            get(admin.deleteConsumerGroupOffsets(group, Set.of(p0)).all());
            return texts(get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()));
        });
        step("delete offsets of an unknown group", () ->
            get(admin.deleteConsumerGroupOffsets("java-nobody", Set.of(p0)).all()));
        step("list groups", () -> get(admin.listGroups().all()).stream()
            .filter(found -> found.groupId().startsWith("java"))
            .map(found -> found.groupId() + " " + found.protocol() + " " + found.type().orElse(null) + " "
                + found.groupState().orElse(null) + " " + found.isSimpleConsumerGroup()).sorted().toList());
        step("list groups by state", () -> get(admin.listGroups(new ListGroupsOptions()
            .inGroupStates(Set.of(GroupState.STABLE)).withTypes(Set.of(GroupType.CLASSIC))).all()).stream()
            .filter(found -> found.groupId().startsWith("java")).count());
        step("describe unknown group", () -> groupShown("java-nobody"));
        step("static member removed", () -> {
            Map<String, String> named = new HashMap<>(settings);
            named.put("group.id", "java-removing");
            named.put("group.instance.id", "java-removed");
            Member member = new Member(named, MAIN);
            Object sizes = sizes("java-removing", new Member[] {member}, 3);
            // A static member that closes stays in its group until it is removed or its session ends.
            member.close();
            Object before = groupShown("java-removing");
            get(admin.removeMembersFromConsumerGroup("java-removing", new RemoveMembersFromConsumerGroupOptions(
                Set.of(new MemberToRemove("java-removed")))).all());
            return List.of(sizes, before, groupShown("java-removing"));
        });
        step("static member replaced", () -> {
            Map<String, String> named = new HashMap<>(settings);
            named.put("group.id", "java-fencing");
            named.put("group.instance.id", "java-twin");
            Member first = new Member(named, MAIN);
            sizes("java-fencing", new Member[] {first}, 3);
            Member second = new Member(named, MAIN);
            Object sizes = sizes("java-fencing", new Member[] {second}, 3);
            first.thread.join(10_000);
            String fate = String.valueOf(first.failure);
            first.close();
            second.close();
            return List.of(sizes, fate);
        });
        step("delete groups", () -> {
            get(admin.deleteConsumerGroups(List.of(group, "java-RangeAssignor")).all());
            return get(admin.listGroups().all()).stream().map(GroupListing::groupId)
                .filter(id -> id.equals(group) || id.equals("java-RangeAssignor")).toList();
        });
        step("delete unknown group", () -> get(admin.deleteConsumerGroups(List.of("java-nobody")).all()));
        step("delete group with a bad id", () -> get(admin.deleteConsumerGroups(List.of("")).all()));
    }

    private void alterConfigs() {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, MAIN);
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        ConfigResource allBrokers = new ConfigResource(ConfigResource.Type.BROKER, "");
        alter("set", topic, "segment.ms", "3600000", AlterConfigOp.OpType.SET);
        alter("append", topic, "cleanup.policy", "compact", AlterConfigOp.OpType.APPEND);
        alter("subtract", topic, "cleanup.policy", "delete", AlterConfigOp.OpType.SUBTRACT);
        alter("append to what is no list", topic, "segment.ms", "1", AlterConfigOp.OpType.APPEND);
        alter("delete", topic, "cleanup.policy", "", AlterConfigOp.OpType.DELETE);
        alter("no number", topic, "segment.ms", "later", AlterConfigOp.OpType.SET);
        alter("out of range", topic, "segment.bytes", "1", AlterConfigOp.OpType.SET);
        alter("unknown key", topic, "no.such.key", "1", AlterConfigOp.OpType.SET);
        alter("unknown topic", new ConfigResource(ConfigResource.Type.TOPIC, "java-nobody"), "segment.ms", "1000",
            AlterConfigOp.OpType.SET);
        alter("bad topic name", new ConfigResource(ConfigResource.Type.TOPIC, "java/slash"), "segment.ms", "1000",
            AlterConfigOp.OpType.SET);
        alter("one broker", broker, "log.cleaner.backoff.ms", "15001", AlterConfigOp.OpType.SET);
        alter("all brokers", allBrokers, "log.cleaner.backoff.ms", "15002", AlterConfigOp.OpType.SET);
        alter("one broker back", broker, "log.cleaner.backoff.ms", "", AlterConfigOp.OpType.DELETE);
        alter("all brokers back", allBrokers, "log.cleaner.backoff.ms", "", AlterConfigOp.OpType.DELETE);
        alter("read-only", broker, "log.dirs", "elsewhere", AlterConfigOp.OpType.SET);
        alter("not a broker id", new ConfigResource(ConfigResource.Type.BROKER, "x"), "log.cleaner.backoff.ms", "1",
            AlterConfigOp.OpType.SET);
        step("alter takes effect", () -> {
            List<Object> shown = new ArrayList<>();
            for (String limit : List.of("1000", "3000000")) {
                set(topic, "max.message.bytes", limit);
                // Other requests of this topic's leader may be served from the settings before: ask until it shows.
                Thread.sleep(1000);
                try (Producer<byte[], byte[]> producer = producer(Map.of("max.request.size", "4000000"))) {
                    shown.add(outcome(() ->
                        get(producer.send(new ProducerRecord<>(MAIN, 2, T0, null, new byte[2_000_000]))).offset()));
                }
            }
            return shown;
        });
        step("list config resources", () -> get(admin.listConfigResources(Set.of(ConfigResource.Type.TOPIC),
            new ListConfigResourcesOptions()).all()).stream().map(ConfigResource::name)
            .filter(name -> name.startsWith("java")).sorted().toList());
    }

    private void alter(String what, ConfigResource resource, String key, String value, AlterConfigOp.OpType operation) {
        step("alter " + what, () -> {
            get(admin.incrementalAlterConfigs(Map.of(resource,
                List.of(new AlterConfigOp(new ConfigEntry(key, value), operation)))).all());
            settle();
            ConfigEntry now = get(admin.describeConfigs(List.of(resource),
                new DescribeConfigsOptions().includeSynonyms(true)).all()).get(resource).get(key);
            return now == null ? "-" : List.of(String.valueOf(now.value()), now.source(), now.synonyms().stream()
                .map(synonym -> synonym.name() + "=" + synonym.value() + " " + synonym.source()).toList());
        });
    }

    private void set(ConfigResource resource, String key, String value) {
        get(admin.incrementalAlterConfigs(Map.of(resource,
            List.of(new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET)))).all());
    }

    private void createPartitions() {
        Map<String, NewPartitions> cases = new LinkedHashMap<>();
        cases.put("more", NewPartitions.increaseTo(4));
        cases.put("fewer", NewPartitions.increaseTo(2));
        cases.put("the same", NewPartitions.increaseTo(4));
        cases.put("assigned", NewPartitions.increaseTo(5, List.of(List.of(1))));
        cases.put("assigned to nobody", NewPartitions.increaseTo(6, List.of(List.of(8))));
        cases.put("too few assignments", NewPartitions.increaseTo(9, List.of(List.of(1))));
        cases.forEach((what, partitions) -> step("create partitions: " + what, () -> {
            get(admin.createPartitions(Map.of(MAIN, partitions)).all());
            settle();
            return get(admin.describeTopics(List.of(MAIN)).allTopicNames()).get(MAIN).partitions().size();
        }));
        step("create partitions: unknown topic", () ->
            get(admin.createPartitions(Map.of("java-nobody", NewPartitions.increaseTo(4))).all()));
        step("produce to a new partition", () -> {
            try (Producer<byte[], byte[]> producer = producer(Map.of())) {
                return get(producer.send(record(MAIN, 4, 0))).offset();
            }
        });
    }

    private void deleteRecords() {
        TopicPartition partition = new TopicPartition(MAIN, 1);
        for (long before : new long[] {5, 3, 1_000, -1}) {
            step("delete records before " + before, () ->
                get(admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(before))).lowWatermarks()
                    .get(partition)).lowWatermark());
            step("earliest after deleting before " + before, () ->
                get(admin.listOffsets(Map.of(partition, OffsetSpec.earliest())).all()).get(partition).offset());
        }
        step("delete records of a compacted topic", () -> {
            TopicPartition compacted = new TopicPartition("java-compacted", 0);
            return get(admin.deleteRecords(Map.of(compacted, RecordsToDelete.beforeOffset(0))).all());
        });
        step("consume what is left", () -> {
            try (Consumer<byte[], byte[]> consumer = consumer(Map.of("auto.offset.reset", "earliest"))) {
                consumer.assign(List.of(partition));
                consumer.seek(partition, 0);
                consumer.poll(Duration.ofMillis(600));
                return consumer.position(partition);
            }
        });
    }

    private void inspect() {
        step("log directories", () -> {
            Map<String, Object> shown = new TreeMap<>();
            Map<String, LogDirDescription> dirs = get(admin.describeLogDirs(List.of(1)).allDescriptions()).get(1);
            for (LogDirDescription dir : dirs.values()) {
                dir.replicaInfos().forEach((partition, info) -> {
                    if (partition.topic().startsWith("java")) {
                        shown.put(partition.toString(), List.of(info.size(), info.offsetLag(), info.isFuture()));
                    }
                });
                shown.put("error", String.valueOf(dir.error()));
                shown.put("knows its size", dir.totalBytes().isPresent() && dir.usableBytes().isPresent());
            }
            shown.put("directories", dirs.size());
            return shown;
        });
        step("producers", () -> {
            TopicPartition partition = new TopicPartition(MAIN, 2);
            return get(admin.describeProducers(List.of(partition)).partitionResult(partition)).activeProducers().stream()
                .map(found -> List.of(found.producerEpoch(), found.lastSequence(),
                    found.coordinatorEpoch().orElse(-1), found.currentTransactionStartOffset().orElse(-1))).toList();
        });
        step("quorum", () -> {
            QuorumInfo quorum = get(admin.describeMetadataQuorum().quorumInfo());
            return Map.of("leader", quorum.leaderId(), "voters", quorum.voters().stream()
                .map(QuorumInfo.ReplicaState::replicaId).toList(), "observers", quorum.observers().size(),
                "nodes", quorum.nodes().size(), "moves", quorum.highWatermark() > 0);
        });
        step("features", () -> {
            FeatureMetadata features = get(admin.describeFeatures().featureMetadata());
            return Map.of("finalized", texts(features.finalizedFeatures()),
                "supported", texts(features.supportedFeatures()));
        });
        step("update unknown feature", () -> get(admin.updateFeatures(Map.of("java.feature",
            new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions()).all()));
    }

    private void deleteTopics() {
        step("delete by id", () -> {
            Uuid id = get(admin.describeTopics(List.of("java-assigned")).allTopicNames()).get("java-assigned").topicId();
            get(admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all());
            return "deleted";
        });
        step("delete unknown id", () ->
            get(admin.deleteTopics(TopicCollection.ofTopicIds(List.of(new Uuid(3, 4)))).all()));
        step("delete unknown topic", () -> get(admin.deleteTopics(List.of("java-nobody")).all()));
        step("delete and create again", () -> {
            get(admin.deleteTopics(List.of("java-defaults")).all());
            get(admin.createTopics(List.of(new NewTopic("java-defaults", 2, (short) 1))).all());
            try (Producer<byte[], byte[]> producer = producer(Map.of())) {
                return get(producer.send(record("java-defaults", 1, 0))).offset();
            }
        });
        settle();
        step("topics left", this::ownTopics);
        step("delete several", () -> {
            // The other topics stay: their segments are read by both brokers' tools afterwards.
            get(admin.deleteTopics(List.of("java-auto", "java.dotted")).all());
            settle();
            return ownTopics();
        });
    }

    // ---- what the steps are made of --------------------------------------------------------------------------------

    /** A consumer that polls on a thread of its own and shows what it holds. */
    private final class Member {
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
            thread.join(20_000);
        }
    }

    private Producer<byte[], byte[]> producer(Map<String, String> settings) {
        Map<String, Object> all = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "client.id", "java-producer",
            "delivery.timeout.ms", "20000", "request.timeout.ms", "10000", "linger.ms", "0"));
        all.putAll(settings);
        return new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private Consumer<byte[], byte[]> consumer(Map<String, String> settings) {
        Map<String, Object> all = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "client.id", "java-consumer",
            "auto.offset.reset", "none", "default.api.timeout.ms", "20000"));
        all.putAll(settings);
        return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** The i-th record of a series: keys, values and headers that are there, empty and null. */
    private static ProducerRecord<byte[], byte[]> record(String topic, int partition, int i) {
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

    /** A controller's answer may come before the broker has taken the change over. */
    private static void settle() {
        try {
            Thread.sleep(400);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private interface Step {
        Object run() throws Exception;
    }

    private static void step(String name, Step step) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("step", name);
        line.put("outcome", outcome(step));
        try {
            System.out.println(JSON.writeValueAsString(line));
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private static Object outcome(Step step) {
        try {
            return step.run();
        } catch (Exception error) {
            Throwable root = rootOf(error);
            return "! " + root.getClass().getSimpleName() + ": " + root.getMessage();
        }
    }

    private static Throwable rootOf(Throwable error) {
        while ((error instanceof ExecutionException || error instanceof CompletionException
            || error.getClass() == RuntimeException.class) && error.getCause() != null) {
            error = error.getCause();
        }
        return error;
    }

    private static <T> T get(Future<T> future) {
        try {
            return future.get(30, TimeUnit.SECONDS);
        } catch (InterruptedException | ExecutionException | TimeoutException error) {
            throw new RuntimeException(error);
        }
    }

    private static Map<String, String> texts(Map<?, ?> map) {
        Map<String, String> texts = new TreeMap<>();
        map.forEach((key, value) -> texts.put(String.valueOf(key), String.valueOf(value)));
        return texts;
    }

    private static List<String> sorted(Collection<?> values) {
        return values == null ? List.of() : values.stream().map(String::valueOf).sorted().toList();
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }

    private static String checksum(byte[] bytes) {
        if (bytes == null) {
            return null;
        }
        CRC32 crc = new CRC32();
        crc.update(bytes);
        return bytes.length + "/" + Long.toHexString(crc.getValue());
    }
}
