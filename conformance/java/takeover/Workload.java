import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * The workload of `cargo xtask take-over`: one process that lives through all changes of hands, so that its producers
 * and their sequence numbers do too. `java … Workload BOOTSTRAP [LOGIN]`, where the file LOGIN has what
 * clients need to get in; a command is one line of JSON on standard input,
 * {"op": …, …}, and its answer one line on standard output, {"ok": …} or {"error": …}. It decides nothing: which
 * commands come is the driver's choice, and what it may find is the driver's model.
 */
public final class Workload {
    static final ObjectMapper JSON = new ObjectMapper();

    private final String bootstrap;
    private final Admin admin;
    private final Map<String, Writer> writers = new LinkedHashMap<>();
    private final Transactions transactions;
    private final Tools tools;
    private Member member;
    private final List<Future<?>> churned = new ArrayList<>();

    private Workload(String bootstrap) {
        this.bootstrap = bootstrap;
        // A short wait between attempts: the broker is away for a while at each change of hands. A long one for a response:
        // a change that is requested again, because a slow broker has not answered, is refused.
        this.admin = Admin.create(Login.settings(bootstrap, "default.api.timeout.ms", "60000",
            "request.timeout.ms", "30000", "reconnect.backoff.max.ms", "100", "retry.backoff.max.ms", "200"));
        this.transactions = new Transactions(bootstrap);
        this.tools = new Tools(bootstrap);
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        if (arguments.length > 1) {
            Login.read(arguments[1]);
        }
        Workload workload = null;
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                JsonNode command = JSON.readTree(line);
                Object result;
                if (command.get("op").asText().equals("secure")) {
                    result = Secured.prepare(arguments[0]);
                } else {
                    // Its clients connect at once, and their user has to be there.
                    workload = workload == null ? new Workload(arguments[0]) : workload;
                    result = workload.perform(command);
                }
                answer.put("ok", result);
            } catch (Throwable error) {
                Throwable root = rootOf(error);
                answer.put("error", root.getClass().getSimpleName() + ": " + root.getMessage());
            }
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private Object perform(JsonNode command) throws Exception {
        switch (command.get("op").asText()) {
            case "create": {
                NewTopic topic = new NewTopic(text(command, "topic"), command.get("partitions").asInt(), (short) 1);
                get(admin.createTopics(List.of(topic.configs(texts(command.get("configs"))))).all());
                return "created";
            }
            case "create-many": {
                List<NewTopic> topics = new ArrayList<>();
                for (int i = 0; i < command.get("count").asInt(); i++) {
                    topics.add(new NewTopic(text(command, "prefix") + i, command.get("partitions").asInt(), (short) 1));
                }
                get(admin.createTopics(topics).all());
                return "created";
            }
            case "delete":
                get(admin.deleteTopics(List.of(text(command, "topic"))).all());
                return "deleted";
            case "add-partitions":
                get(admin.createPartitions(Map.of(text(command, "topic"),
                    NewPartitions.increaseTo(command.get("partitions").asInt()))).all());
                return "added";
            case "configure": {
                List<AlterConfigOp> changes = new ArrayList<>();
                texts(command.get("set")).forEach((key, value) ->
                    changes.add(new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET)));
                command.get("delete").forEach(key ->
                    changes.add(new AlterConfigOp(new ConfigEntry(key.asText(), ""), AlterConfigOp.OpType.DELETE)));
                ConfigResource.Type type = ConfigResource.Type.valueOf(text(command, "type"));
                get(admin.incrementalAlterConfigs(
                    Map.of(new ConfigResource(type, text(command, "name")), changes)).all());
                return "configured";
            }
            case "delete-records":
                return get(admin.deleteRecords(Map.of(partition(command),
                    RecordsToDelete.beforeOffset(command.get("before").asLong()))).lowWatermarks()
                    .get(partition(command))).lowWatermark();
            case "move":
                return move(new TopicPartitionReplica(text(command, "topic"), command.get("partition").asInt(), 1),
                    text(command, "directory"), command.get("seconds").asInt());
            case "commit": {
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (JsonNode row : command.get("offsets")) {
                    offsets.put(new TopicPartition(row.get(0).asText(), row.get(1).asInt()),
                        new OffsetAndMetadata(row.get(2).asLong(), Optional.empty(), row.get(3).asText()));
                }
                get(admin.alterConsumerGroupOffsets(text(command, "group"), offsets).all());
                return "committed";
            }
            case "delete-group":
                get(admin.deleteConsumerGroups(List.of(text(command, "group"))).all());
                return "deleted";
            case "consume":
                return consume(text(command, "group"), text(command, "protocol"), text(command, "topic"),
                    command.get("count").asInt());
            case "start-writer": {
                Writer writer = new Writer(bootstrap, command);
                writers.put(text(command, "name"), writer);
                return "started";
            }
            case "join":
                member = new Member(bootstrap, text(command, "group"), text(command, "topic"));
                return "joined";
            case "member": {
                String topic = text(command, "topic");
                Map<TopicPartition, OffsetSpec> wanted = new HashMap<>();
                for (int i = 0; i < command.get("partitions").asInt(); i++) {
                    wanted.put(new TopicPartition(topic, i), OffsetSpec.latest());
                }
                Map<TopicPartition, Long> ends = new HashMap<>();
                get(admin.listOffsets(wanted).all()).forEach((partition, end) -> ends.put(partition, end.offset()));
                return member.caughtUp(ends, System.nanoTime() + 60_000_000_000L);
            }
            case "share":
                return share(text(command, "group"), text(command, "topic"));
            case "resume":
                writers.values().forEach(Writer::resume);
                return "resumed";
            case "drain":
                return drain(command.get("seconds").asInt());
            case "transact":
                return transactions.perform(command);
            case "read":
                return Reading.all(bootstrap, text(command, "topic"), command.get("partitions").asInt(),
                    text(command, "isolation"));
            case "picture":
                return new Picture(admin).taken();
            case "leadership":
                return Leadership.settled(admin);
            case "churn":
                churn(command.get("asked"));
                return "asked";
            case "churn-answers":
                return churnAnswers();
            case "tool":
                return tools.run(command);
            default:
                throw new IllegalArgumentException("no such command: " + command);
        }
    }

    /** Asks for topics to be created and deleted, one request each, and does not wait for the answers. */
    private void churn(JsonNode asked) {
        for (JsonNode change : asked) {
            churned.add(change.has("create")
                ? admin.createTopics(List.of(new NewTopic(text(change, "create"), change.get("partitions").asInt(),
                    (short) 1))).all()
                : admin.deleteTopics(List.of(text(change, "delete"))).all());
        }
    }

    private List<String> churnAnswers() {
        List<String> answers = new ArrayList<>();
        for (Future<?> future : churned) {
            try {
                get(future);
                answers.add("ok");
            } catch (RuntimeException error) {
                answers.add(rootOf(error).getClass().getSimpleName());
            }
        }
        churned.clear();
        return answers;
    }

    /** Has every writer pause, and waits until each of its records is acknowledged or given up. */
    private Object drain(int seconds) throws InterruptedException {
        Map<String, Object> drained = new LinkedHashMap<>();
        for (Writer writer : writers.values()) {
            writer.pause();
        }
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        for (Map.Entry<String, Writer> entry : writers.entrySet()) {
            if (!entry.getValue().settle(deadline)) {
                throw new IllegalStateException(entry.getKey() + " has records that are neither acknowledged nor refused");
            }
            drained.put(entry.getKey(), entry.getValue().taken());
        }
        return drained;
    }

    /** Reads some records in a group, commits where it stands and leaves; answers with what it committed. */
    private Object consume(String group, String protocol, String topic, int count) {
        Map<String, Object> settings = Login.settings(bootstrap, "group.id", group,
            "auto.offset.reset", "earliest", "enable.auto.commit", "false", "group.protocol", protocol,
            "max.poll.records", "50", "default.api.timeout.ms", "20000");
        List<List<Object>> committed = new ArrayList<>();
        try (Consumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic));
            int read = 0;
            for (long deadline = System.nanoTime() + 60_000_000_000L; read < count;) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException(group + " has " + consumer.assignment() + " and is not at the end after "
                        + read + " records");
                }
                read += consumer.poll(Duration.ofMillis(200)).count();
                // What has been read up to its end gives no more: the writers pause meanwhile.
                if (!consumer.assignment().isEmpty() && consumer.assignment().stream()
                    .allMatch(partition -> consumer.currentLag(partition).orElse(1) == 0)) {
                    break;
                }
            }
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (TopicPartition partition : consumer.assignment()) {
                offsets.put(partition, new OffsetAndMetadata(consumer.position(partition), "by " + group));
            }
            consumer.commitSync(offsets);
            offsets.forEach((partition, offset) -> committed.add(
                List.of(partition.topic(), partition.partition(), offset.offset(), offset.metadata())));
        }
        return committed;
    }

    /** Moves a replica to another log directory, and waits that long for it to be there. */
    private String move(TopicPartitionReplica replica, String directory, int seconds) throws InterruptedException {
        get(admin.alterReplicaLogDirs(Map.of(replica, directory)).all());
        for (long deadline = System.nanoTime() + seconds * 1_000_000_000L; System.nanoTime() < deadline;) {
            DescribeReplicaLogDirsResult.ReplicaLogDirInfo found =
                get(admin.describeReplicaLogDirs(List.of(replica)).all()).get(replica);
            if (directory.equals(found.getCurrentReplicaLogDir()) && found.getFutureReplicaLogDir() == null) {
                return "moved";
            }
            Thread.sleep(100);
        }
        if (seconds > 0) {
            throw new IllegalStateException(replica + " is not in " + directory + " after " + seconds + " s");
        }
        return "asked";
    }

    /** Has a share group read and acknowledge some records. */
    private Object share(String group, String topic) {
        get(admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, group),
            List.of(new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"),
                AlterConfigOp.OpType.SET)))).all());
        Script.settle(admin);
        int read = 0;
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(
            Login.settings(bootstrap, "group.id", group),
            new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic));
            // Kafka first creates the topic with the state of share groups.
            for (long deadline = System.nanoTime() + 30_000_000_000L; read == 0 && System.nanoTime() < deadline;) {
                read += consumer.poll(Duration.ofMillis(200)).count();
            }
            consumer.commitSync();
        }
        return read;
    }

    static TopicPartition partition(JsonNode command) {
        return new TopicPartition(text(command, "topic"), command.get("partition").asInt());
    }

    static String text(JsonNode command, String field) {
        return command.get(field).asText();
    }

    static Map<String, String> texts(JsonNode object) {
        Map<String, String> texts = new LinkedHashMap<>();
        if (object != null) {
            object.fields().forEachRemaining(field -> texts.put(field.getKey(), field.getValue().asText()));
        }
        return texts;
    }

    static Throwable rootOf(Throwable error) {
        while ((error instanceof ExecutionException || error instanceof CompletionException
            || error.getClass() == RuntimeException.class) && error.getCause() != null) {
            error = error.getCause();
        }
        return error;
    }

    static <T> T get(Future<T> future) {
        try {
            return future.get(70, TimeUnit.SECONDS);
        } catch (InterruptedException | ExecutionException | TimeoutException error) {
            throw new RuntimeException(error);
        }
    }
}
