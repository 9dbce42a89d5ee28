// The conformance script of several log directories: `LogDirsScript BOOTSTRAP` against a broker that has three of them.
//
// Replicas are moved from one to another by the Java admin client and by Kafka's own tools while a producer writes to
// them, and directories are cordoned (KIP-1066). Where a new replica goes is left to chance by Kafka where directories
// hold equally many, so that every replica whose place is shown was put there by name.

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;

public final class LogDirsScript extends Script {
    private static final String TOPIC = "dirs-moved";
    private static final int PARTITIONS = 3;
    private static final ConfigResource BROKER = new ConfigResource(ConfigResource.Type.BROKER, "1");

    /** The three directories, and the folder in which they are, which no two brokers share. */
    private final List<String> dirs;
    private final String parent;

    private LogDirsScript(String bootstrap) {
        super(bootstrap);
        dirs = sorted(get(admin.describeLogDirs(List.of(1)).allDescriptions()).get(1).keySet());
        parent = Path.of(dirs.get(0)).getParent().toString();
    }

    public static void main(String[] arguments) throws Exception {
        LogDirsScript script = new LogDirsScript(arguments[0]);
        script.placement();
        Writer writer = script.new Writer();
        script.moves();
        script.refusedMoves();
        script.slowMove();
        script.tools();
        script.readBack(writer);
        script.cordoned();
        script.cordonedAtRefusal();
        script.admin.close();
        System.exit(0);
    }

    // ---- steps -----------------------------------------------------------------------------------------------------

    private void placement() {
        show("directories", () -> dirs);
        show("a place for a replica that is not there yet", () -> {
            Map<TopicPartitionReplica, String> places = new HashMap<>();
            for (int partition = 0; partition < PARTITIONS; partition++) {
                places.put(replica(TOPIC, partition), dirs.get(partition));
            }
            return errors(admin.alterReplicaLogDirs(places));
        });
        show("create at those places", () -> {
            get(admin.createTopics(List.of(new NewTopic(TOPIC, PARTITIONS, (short) 1)
                .configs(Map.of("segment.bytes", "1048576")))).all());
            await("the places", () -> places().values().stream()
                .noneMatch(place -> ((List<?>) place).get(0) == null));
            return places();
        });
        show("describe", () -> {
            Map<String, Object> shown = new TreeMap<>();
            get(admin.describeLogDirs(List.of(1)).allDescriptions()).get(1).forEach((dir, found) -> {
                shown.put(dir, Arrays.asList(String.valueOf(found.error()), found.totalBytes().isPresent(),
                    found.usableBytes().isPresent(), found.isCordoned(), found.replicaInfos().entrySet().stream()
                        .filter(entry -> entry.getKey().topic().equals(TOPIC))
                        .map(entry -> entry.getKey() + " " + entry.getValue().isFuture() + " "
                            + entry.getValue().offsetLag()).sorted().toList()));
            });
            return shown;
        });
    }

    private void moves() {
        for (int turn = 1; turn <= 3; turn++) {
            int by = turn;
            show("move every partition on, the " + turn + ". time", () -> {
                Map<TopicPartitionReplica, String> to = new HashMap<>();
                for (int partition = 0; partition < PARTITIONS; partition++) {
                    to.put(replica(TOPIC, partition), dirs.get((partition + by) % dirs.size()));
                }
                return moved(to);
            });
        }
        show("move to where it is", () -> moved(Map.of(replica(TOPIC, 0), dirs.get(0))));
    }

    private void refusedMoves() throws Exception {
        String nowhere = parent + "/nowhere";
        show("move to a directory that is none", () ->
            errors(admin.alterReplicaLogDirs(Map.of(replica(TOPIC, 0), nowhere))));
        show("move to a path that is not absolute", () ->
            errors(admin.alterReplicaLogDirs(Map.of(replica(TOPIC, 0), "nowhere"))));
        show("move to a path in another form", () ->
            errors(admin.alterReplicaLogDirs(Map.of(replica(TOPIC, 0), dirs.get(1) + "/"))));
        show("move a partition that is not there", () ->
            errors(admin.alterReplicaLogDirs(Map.of(replica("dirs-nobody", 0), dirs.get(0)))));
        show("move some that can be and some that cannot", () -> errors(admin.alterReplicaLogDirs(Map.of(
            replica(TOPIC, 0), dirs.get(0), replica(TOPIC, 1), nowhere, replica(TOPIC, 99), dirs.get(0)))));
        show("replicas of brokers and partitions that are not there", () -> {
            List<TopicPartitionReplica> asked = List.of(replica("dirs-nobody", 0), replica(TOPIC, 99));
            Map<String, Object> shown = new TreeMap<>();
            get(admin.describeReplicaLogDirs(asked).all()).forEach((replica, info) -> shown.put(String.valueOf(replica),
                Arrays.asList(info.getCurrentReplicaLogDir(), info.getFutureReplicaLogDir())));
            return shown;
        });
    }

    /** A move that takes long is seen, changed and given up. */
    private void slowMove() {
        String slow = "dirs-slow";
        show("what there is to move slowly", () -> {
            errors(admin.alterReplicaLogDirs(Map.of(replica(slow, 0), dirs.get(0))));
            get(admin.createTopics(List.of(new NewTopic(slow, 1, (short) 1))).all());
            settle();
            try (Producer<byte[], byte[]> producer = producer(Map.of("max.request.size", "2000000"))) {
                for (int i = 0; i < 20; i++) {
                    byte[] value = new byte[500_000];
                    new Random(i).nextBytes(value);
                    get(producer.send(new ProducerRecord<>(slow, 0, null, value)));
                }
            }
            return setBroker("replica.alter.log.dirs.io.max.bytes.per.second", "100000");
        });
        show("a move that takes long", () -> {
            Object errors = errors(admin.alterReplicaLogDirs(Map.of(replica(slow, 0), dirs.get(1))));
            return List.of(errors, placeOf(slow, dirs.get(0), dirs.get(1)));
        });
        show("another place while it takes long", () -> {
            Object errors = errors(admin.alterReplicaLogDirs(Map.of(replica(slow, 0), dirs.get(2))));
            return List.of(errors, placeOf(slow, dirs.get(0), dirs.get(2)));
        });
        show("back to where it is while it takes long", () -> {
            Object errors = errors(admin.alterReplicaLogDirs(Map.of(replica(slow, 0), dirs.get(0))));
            return List.of(errors, placeOf(slow, dirs.get(0), null));
        });
        show("the move again, and then without a limit", () -> {
            Object errors = errors(admin.alterReplicaLogDirs(Map.of(replica(slow, 0), dirs.get(2))));
            Object before = placeOf(slow, dirs.get(0), dirs.get(2));
            Object set = setBroker("replica.alter.log.dirs.io.max.bytes.per.second", null);
            return List.of(errors, before, set, placeOf(slow, dirs.get(2), null));
        });
        show("delete a topic that is being moved", () -> {
            setBroker("replica.alter.log.dirs.io.max.bytes.per.second", "100000");
            errors(admin.alterReplicaLogDirs(Map.of(replica(slow, 0), dirs.get(1))));
            placeOf(slow, dirs.get(2), dirs.get(1));
            get(admin.deleteTopics(List.of(slow)).all());
            settle();
            setBroker("replica.alter.log.dirs.io.max.bytes.per.second", null);
            return dirs.stream().mapToLong(dir -> count(slow, dir)).sum();
        });
    }

    private void tools() throws Exception {
        String reassign = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand";
        Path plan = Files.createTempFile("dirs", ".json");
        String[] to = {dirs.get(2), dirs.get(0), dirs.get(1)};
        Map<TopicPartitionReplica, String> places = new HashMap<>();
        StringBuilder partitions = new StringBuilder();
        for (int partition = 0; partition < PARTITIONS; partition++) {
            places.put(replica(TOPIC, partition), to[partition]);
            partitions.append(partition == 0 ? "" : ",").append("{\"topic\":\"" + TOPIC + "\",\"partition\":" + partition
                + ",\"replicas\":[1],\"log_dirs\":[\"" + to[partition] + "\"]}");
        }
        Files.writeString(plan, "{\"version\":1,\"partitions\":[" + partitions + "]}");
        String[] verify = {"--bootstrap-server", bootstrap, "--verify", "--reassignment-json-file", plan.toString()};
        show("reassign-partitions.sh verifies what was not asked for", () -> lines(ToolRun.of(reassign, verify)));
        show("reassign-partitions.sh moves", () -> {
            String said = ToolRun.of(reassign, "--bootstrap-server", bootstrap, "--execute", "--reassignment-json-file",
                plan.toString(), "--replica-alter-log-dirs-throttle", "50000000");
            placesWhenMoved(places);
            return lines(said);
        });
        settle();
        show("reassign-partitions.sh throttles", () -> throttles());
        show("reassign-partitions.sh verifies what is done", () -> lines(ToolRun.of(reassign, verify)));
        settle();
        show("reassign-partitions.sh has taken the throttle away", () -> throttles());
        Files.writeString(plan, Files.readString(plan).replace(dirs.get(1), parent + "/nowhere"));
        show("reassign-partitions.sh to a directory that is none", () -> lines(ToolRun.of(reassign, "--bootstrap-server",
            bootstrap, "--execute", "--reassignment-json-file", plan.toString(), "--timeout", "2000")));
        String[] verifyShortly = Arrays.copyOf(verify, verify.length);
        show("reassign-partitions.sh verifies that", () -> lines(ToolRun.of(reassign, verifyShortly)));
        Files.delete(plan);
        show("log-dirs.sh", this::logDirs);
        show("where all of that has put them", () -> placesWhenMoved(places));
    }

    /** Everything that was acknowledged, once and in order, however often its log was moved. */
    private void readBack(Writer writer) {
        show("what was written meanwhile", () -> {
            long[] acknowledged = writer.stop();
            Map<String, Object> shown = new TreeMap<>();
            for (int partition = 0; partition < PARTITIONS; partition++) {
                TopicPartition moved = new TopicPartition(TOPIC, partition);
                try (Consumer<byte[], byte[]> consumer = consumer(Map.of())) {
                    consumer.assign(List.of(moved));
                    consumer.seekToBeginning(List.of(moved));
                    long next = 0;
                    String wrong = "nothing";
                    long until = System.nanoTime() + PATIENCE.toNanos();
                    while (next < acknowledged[partition] && wrong.equals("nothing")) {
                        if (System.nanoTime() > until) {
                            giveUp("record " + next + " of " + moved);
                        }
                        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                            if (record.offset() != next || !text(record.key()).equals("" + next)) {
                                wrong = "at offset " + record.offset() + " the record " + text(record.key());
                                break;
                            }
                            next++;
                        }
                    }
                    boolean isMuch = acknowledged[partition] > 100;
                    shown.put("partition " + partition, List.of(isMuch, next == acknowledged[partition], wrong,
                        writer.failure == null ? "no failure" : writer.failure));
                }
            }
            return shown;
        });
    }

    private Object logDirs() {
        return lines(ToolRun.of("org.apache.kafka.tools.LogDirsCommand", "--bootstrap-server", bootstrap, "--describe",
            "--topic-list", TOPIC));
    }

    private void cordoned() {
        String key = "cordoned.log.dirs";
        show("cordon a directory", () -> setBroker(key, dirs.get(1)));
        show("describe what is cordoned", this::cordonedDirs);
        show("log-dirs.sh with what is cordoned", this::logDirs);
        show("move into it", () -> errors(admin.alterReplicaLogDirs(Map.of(replica(TOPIC, 0), dirs.get(1)))));
        show("move out of it", () -> moved(Map.of(replica(TOPIC, 1), dirs.get(0), replica(TOPIC, 2), dirs.get(0))));
        show("a place in it for a replica that is not there yet", () ->
            errors(admin.alterReplicaLogDirs(Map.of(replica("dirs-cordoned", 0), dirs.get(1)))));
        show("new partitions keep out of it", () -> {
            get(admin.createTopics(List.of(new NewTopic("dirs-cordoned", 6, (short) 1))).all());
            settle();
            return count("dirs-cordoned", dirs.get(1));
        });
        show("more partitions keep out of it", () -> {
            get(admin.createPartitions(Map.of("dirs-cordoned", NewPartitions.increaseTo(9))).all());
            settle();
            return count("dirs-cordoned", dirs.get(1));
        });
        show("cordon two", () -> setBroker(key, dirs.get(1) + "," + dirs.get(2)));
        show("describe two", this::cordonedDirs);
        show("cordon all by name", () -> cordonAll(String.join(",", dirs)));
        createWithAllCordoned("by name");
        show("cordon all by a star", () -> cordonAll("*"));
        show("describe all", this::cordonedDirs);
        createWithAllCordoned("by a star");
        show("write where all are cordoned", () -> {
            try (Producer<byte[], byte[]> producer = producer(Map.of())) {
                return get(producer.send(new ProducerRecord<>(TOPIC, 0, bytes("k"), bytes("v")))).partition();
            }
        });
        show("cordon none", () -> cordonAll(null));
        show("describe none", this::cordonedDirs);
        show("move into it again", () -> moved(Map.of(replica(TOPIC, 0), dirs.get(1))));
    }

    private void createWithAllCordoned(String how) {
        show("create where all are cordoned " + how, () -> {
            get(admin.createTopics(List.of(new NewTopic("dirs-refused", 1, (short) 1))).all());
            return "created";
        });
        show("create by assignment where all are cordoned " + how, () -> {
            get(admin.createTopics(List.of(new NewTopic("dirs-refused", Map.of(0, List.of(1))))).all());
            return "created";
        });
        show("more partitions where all are cordoned " + how, () -> {
            get(admin.createPartitions(Map.of("dirs-cordoned", NewPartitions.increaseTo(12))).all());
            return "created";
        });
    }

    private void cordonedAtRefusal() {
        String key = "cordoned.log.dirs";
        show("cordon what is no log directory", () -> setBroker(key, parent + "/nowhere"));
        show("cordon a star and more", () -> setBroker(key, "*," + dirs.get(0)));
        show("cordon twice the same", () -> setBroker(key, dirs.get(0) + "," + dirs.get(0)));
        show("cordon nothing by an empty list", () -> setBroker(key, ""));
        show("cordon for the whole cluster", () -> {
            ConfigResource all = new ConfigResource(ConfigResource.Type.BROKER, "");
            get(admin.incrementalAlterConfigs(Map.of(all, List.of(new AlterConfigOp(new ConfigEntry(key, dirs.get(0)),
                AlterConfigOp.OpType.SET)))).all());
            return "set";
        });
        show("describe what is left", this::cordonedDirs);
    }

    // ---- what steps are made of ------------------------------------------------------------------------------------

    /** A step whose outcome names no folder of this machine. */
    private void show(String name, Step step) {
        step(name, () -> {
            Object shown = outcome(step);
            String text = JSON.writeValueAsString(shown).replace(parent, "DIRS");
            return JSON.readTree(text);
        });
    }

    private static TopicPartitionReplica replica(String topic, int partition) {
        return new TopicPartitionReplica(topic, partition, 1);
    }

    private Object errors(AlterReplicaLogDirsResult result) {
        Map<String, Object> shown = new TreeMap<>();
        result.values().forEach((replica, future) -> shown.put(String.valueOf(replica), outcome(() -> {
            get(future);
            return "ok";
        })));
        return shown;
    }

    /** Where the replicas are and where they are going. */
    private Map<String, Object> places() {
        List<TopicPartitionReplica> asked = new ArrayList<>();
        for (int partition = 0; partition < PARTITIONS; partition++) {
            asked.add(replica(TOPIC, partition));
        }
        Map<String, Object> shown = new TreeMap<>();
        get(admin.describeReplicaLogDirs(asked).all()).forEach((replica, info) -> shown.put(String.valueOf(replica),
            Arrays.asList(info.getCurrentReplicaLogDir(), info.getFutureReplicaLogDir())));
        return shown;
    }

    /**
     * The same, as soon as these replicas have arrived. While a broker puts one log in the place of the other, it may describe
     * the one that has been left, and no move.
     */
    private Map<String, Object> placesWhenMoved(Map<TopicPartitionReplica, String> to) throws Exception {
        Map<String, Object> shown = new TreeMap<>();
        await("the end of the moves", () -> {
            shown.clear();
            shown.putAll(places());
            return to.entrySet().stream().allMatch(move ->
                Arrays.asList(move.getValue(), null).equals(shown.get(String.valueOf(move.getKey()))));
        });
        return shown;
    }

    /** What is said to moves, and where the replicas are then. */
    private Object moved(Map<TopicPartitionReplica, String> to) throws Exception {
        Object errors = errors(admin.alterReplicaLogDirs(to));
        return List.of(errors, placesWhenMoved(to));
    }

    /** Where a topic is and where it is going, as soon as that is this directory, or none. */
    private Object placeOf(String topic, String current, String future) throws Exception {
        List<String> expected = Arrays.asList(current, future);
        await(topic + " in " + current + ", going to " + future, () -> {
            var info = get(admin.describeReplicaLogDirs(List.of(replica(topic, 0))).all()).get(replica(topic, 0));
            return expected.equals(Arrays.asList(info.getCurrentReplicaLogDir(), info.getFutureReplicaLogDir()));
        });
        return expected;
    }

    private long count(String topic, String dir) {
        return get(admin.describeLogDirs(List.of(1)).allDescriptions()).get(1).get(dir).replicaInfos().keySet().stream()
            .filter(partition -> partition.topic().equals(topic)).count();
    }

    private List<String> cordonedDirs() {
        return get(admin.describeLogDirs(List.of(1)).allDescriptions()).get(1).entrySet().stream()
            .filter(entry -> entry.getValue().isCordoned()).map(Map.Entry::getKey).sorted().toList();
    }

    private Object setBroker(String key, String value) {
        AlterConfigOp.OpType type = value == null ? AlterConfigOp.OpType.DELETE : AlterConfigOp.OpType.SET;
        get(admin.incrementalAlterConfigs(Map.of(BROKER, List.of(new AlterConfigOp(new ConfigEntry(key, value), type))))
            .all());
        settle();
        ConfigEntry now = get(admin.describeConfigs(List.of(BROKER)).all()).get(BROKER).get(key);
        return now == null ? "not set" : now.value();
    }

    /** Cordons all directories, or none. A controller hears of that with a heartbeat of the broker. */
    private Object cordonAll(String value) throws Exception {
        Object set = setBroker("cordoned.log.dirs", value);
        boolean isNone = cordonedDirs().isEmpty();
        if (isNone || cordonedDirs().size() == dirs.size()) {
            await("a controller that has heard of it", () -> takesTopics() == isNone);
        }
        return set;
    }

    private boolean takesTopics() {
        try {
            // A topic that is never there: one is created by assignment where all are cordoned.
            get(admin.createTopics(List.of(new NewTopic("dirs-asked", 1, (short) 1)),
                new CreateTopicsOptions().validateOnly(true)).all());
            return true;
        } catch (RuntimeException error) {
            return false;
        }
    }

    /** The throttles of the broker and of the topic. */
    private Object throttles() {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, TOPIC);
        Map<String, Object> shown = new TreeMap<>();
        get(admin.describeConfigs(List.of(BROKER, topic)).all()).forEach((resource, config) -> shown.put(
            resource.type() + " " + resource.name(), config.entries().stream()
                .filter(entry -> entry.name().contains("throttled") || entry.name().contains("io.max.bytes"))
                .map(entry -> entry.name() + "=" + entry.value()).sorted().toList()));
        return shown;
    }

    /** What a tool has printed, without sizes and in an order of its own. */
    private static List<String> lines(String printed) {
        return printed.lines().filter(line -> !line.isBlank() && !line.contains("SLF4J") && !line.contains(" WARN ")
                && !line.startsWith("\tat "))
            .map(line -> line.replaceAll("\"(size|totalBytes|usableBytes|offsetLag)\":-?[0-9]+", "\"$1\":\"N\""))
            .map(LogDirsScript::sortedJson).map(String::strip).sorted().toList();
    }

    /** Directories and partitions come in the order of hash tables. */
    private static String sortedJson(String line) {
        if (!line.startsWith("{\"")) {
            return line;
        }
        try {
            return String.valueOf(sortedJson(JSON.readTree(line)));
        } catch (Exception error) {
            return line;
        }
    }

    private static Object sortedJson(JsonNode node) {
        if (node.isArray()) {
            List<String> items = new ArrayList<>();
            node.forEach(item -> items.add(String.valueOf(sortedJson(item))));
            Collections.sort(items);
            return items;
        }
        if (node.isObject()) {
            Map<String, Object> fields = new TreeMap<>();
            node.fields().forEachRemaining(field -> fields.put(field.getKey(), sortedJson(field.getValue())));
            return fields;
        }
        return node;
    }

    /** Writes to all partitions all the time, each record's key the offset that it is to have. */
    private final class Writer {
        private final AtomicBoolean isStopping = new AtomicBoolean();
        private final long[] sent = new long[PARTITIONS];
        private final AtomicLongArray acknowledged = new AtomicLongArray(PARTITIONS);
        private final Thread thread;
        volatile String failure;

        Writer() {
            thread = new Thread(this::write, "writer");
            thread.setDaemon(true);
            thread.start();
        }

        private void write() {
            Map<String, String> settings = Map.of("enable.idempotence", "true", "linger.ms", "5", "client.id", "dirs");
            try (Producer<byte[], byte[]> producer = producer(settings)) {
                while (!isStopping.get()) {
                    for (int partition = 0; partition < PARTITIONS; partition++) {
                        int to = partition;
                        producer.send(new ProducerRecord<>(TOPIC, to, bytes("" + sent[to]++), new byte[1000]),
                            (metadata, error) -> {
                                if (error == null) {
                                    acknowledged.incrementAndGet(to);
                                } else {
                                    failure = error.toString();
                                }
                            });
                    }
                    Thread.sleep(5);
                }
            } catch (InterruptedException | RuntimeException error) {
                failure = error.toString();
            }
        }

        long[] stop() throws InterruptedException {
            isStopping.set(true);
            thread.join(PATIENCE.toMillis());
            long[] counts = new long[PARTITIONS];
            for (int partition = 0; partition < PARTITIONS; partition++) {
                counts[partition] = acknowledged.get(partition);
            }
            return counts;
        }
    }
}
