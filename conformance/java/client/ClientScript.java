// The Java client's conformance script: compiled with the files beside it and run as `ClientScript BOOTSTRAP`.
//
// Every step prints one line of JSON, {"step": …, "outcome": …}, free of values that differ from run to run, so that
// the lines of two brokers can be compared one by one. An error is an outcome like any other: class and message.

import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.*;

public final class ClientScript extends Script {
    private ClientScript(String bootstrap) {
        super(bootstrap);
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
        GroupSteps groups = new GroupSteps(script.bootstrap);
        groups.rebalances();
        groups.administration();
        groups.consumerProtocol();
        try (GroupRequests requests = new GroupRequests(script.bootstrap)) {
            requests.all();
        }
        try (ClassicRequests requests = new ClassicRequests(script.bootstrap, MAIN)) {
            requests.all();
        }
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
            if (type == ConfigResource.Type.BROKER && entry.name().equals("log.cleaner.delete.retention.ms")) {
                continue; // The tools' script changes it meanwhile, on the same broker.
            }
            if (type == ConfigResource.Type.BROKER && entry.name().startsWith("ottla.")) {
                continue; // Settings that only Ottla has.
            }
            if (SINCE_KAFKA_4_4.contains(entry.name())) {
                continue;
            }
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
                        "compression.type", compression, "linger.ms", "30000", "enable.idempotence", "false"))) {
                        // All of them are one batch, however long the script is held up meanwhile.
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
                // The error names the partitions that the client knows.
                await("the partitions of " + MAIN, () ->
                    !String.valueOf(outcome(() -> producer.partitionsFor(MAIN))).startsWith("! "));
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
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            while (shown.size() < expected) {
                if (System.nanoTime() > deadline) {
                    giveUp(expected + " records of " + from + ", of which there are " + shown.size());
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    shown.add(recordShown(record));
                }
            }
        }
        return shown;
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
                    return moved(consumer, partition, 1_000);
                }
            });
        }
        step("seek to the end", () -> {
            try (Consumer<byte[], byte[]> consumer = consumer(Map.of())) {
                consumer.assign(List.of(partition));
                consumer.seekToEnd(List.of(partition));
                long position = consumer.position(partition);
                int[] count = {0};
                await("a lag", () -> {
                    count[0] += consumer.poll(Duration.ofMillis(300)).count();
                    return consumer.currentLag(partition).isPresent();
                });
                return List.of(position, count[0], consumer.currentLag(partition).orElse(-1));
            }
        });
    }

    /** Where a consumer goes on that is sent to an offset without a record: its position, or its first record. */
    private static long moved(Consumer<byte[], byte[]> consumer, TopicPartition partition, long to) throws Exception {
        consumer.seek(partition, to);
        long[] position = {to};
        await("another position", () -> {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                position[0] = record.offset();
                return true;
            }
            position[0] = consumer.position(partition);
            return position[0] != to;
        });
        return position[0];
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
                settle();
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
                return moved(consumer, partition, 0);
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
                    found.coordinatorEpoch().orElse(-1), found.currentTransactionStartOffset().orElse(-1)).toString())
                .sorted().toList();
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
}
