// The conformance script of Kafka's own command line tools: `java -cp JARS ToolsScript.java BOOTSTRAP`.
//
// Each tool runs in this one process (see ToolRun). Every step prints one line of JSON, {"step": …, "outcome": …},
// where the outcome is the lines that the tool printed, free of values that differ from run to run.

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayInputStream;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public final class ToolsScript {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream OUT = System.out;
    private static final String TOOLS = "org.apache.kafka.tools.";
    private static String bootstrap;
    private static Admin admin;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        topics();
        records();
        groups();
        settings();
        cluster();
        verifiable();
        deletion();
        OUT.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void topics() {
        run("topics: create", "TopicCommand", "--create", "--topic", "tools-main", "--partitions", "3",
            "--config", "retention.ms=-1");
        run("topics: create another", "TopicCommand", "--create", "--topic", "tools.dotted");
        run("topics: create if not there", "TopicCommand", "--create", "--topic", "tools-main", "--if-not-exists");
        run("topics: create again", "TopicCommand", "--create", "--topic", "tools-main");
        run("topics: create with assignment", "TopicCommand", "--create", "--topic", "tools-assigned",
            "--replica-assignment", "1,1");
        run("topics: create with a bad setting", "TopicCommand", "--create", "--topic", "tools-bad",
            "--config", "retention.ms=soon");
        settle();
        run("topics: describe", "TopicCommand", "--describe", "--topic", "tools-.*");
        run("topics: describe unknown", "TopicCommand", "--describe", "--topic", "nobody");
        run("topics: list", "TopicCommand", "--list", "--topic", "tools.*");
        run("topics: describe overridden", "TopicCommand", "--describe", "--topic", "tools-.*",
            "--topics-with-overrides");
        run("topics: describe unavailable", "TopicCommand", "--describe", "--topic", "tools-.*",
            "--unavailable-partitions");
        run("topics: more partitions", "TopicCommand", "--alter", "--topic", "tools-assigned", "--partitions", "4");
        run("topics: fewer partitions", "TopicCommand", "--alter", "--topic", "tools-assigned", "--partitions", "2");
        settle();
        run("topics: describe altered", "TopicCommand", "--describe", "--topic", "tools-assigned");
    }

    private static void records() throws Exception {
        StringBuilder input = new StringBuilder();
        for (int i = 0; i < 30; i++) {
            input.append("h1:v").append(i).append("\tkey-").append(i % 3).append("\tvalue-").append(i).append('\n');
        }
        for (String compression : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            produce("console producer: " + compression, input.toString(), "--topic", "tools.dotted",
                "--compression-codec", compression, "--sync", "--timeout", "1", "--request-timeout-ms", "60000",
                "--reader-property", "parse.key=true", "--reader-property", "parse.headers=true");
        }
        run("console consumer: from the beginning", "consumer.ConsoleConsumer", "--topic", "tools.dotted",
            "--from-beginning", "--max-messages", "150", "--timeout-ms", "120000", "--formatter-property",
            "print.key=true", "--formatter-property", "print.headers=true", "--formatter-property",
            "print.partition=true", "--formatter-property", "print.offset=true");
        run("console consumer: one partition from an offset", "consumer.ConsoleConsumer", "--topic", "tools.dotted",
            "--partition", "0", "--offset", "145", "--max-messages", "3", "--timeout-ms", "120000");
        run("console consumer: the end is quiet", "consumer.ConsoleConsumer", "--topic", "tools.dotted",
            "--partition", "0", "--offset", "latest", "--timeout-ms", "1500");
        run("offsets", "GetOffsetShell", "--topic-partitions", "tools.dotted,tools-main:0-2");
        run("offsets: earliest", "GetOffsetShell", "--topic", "tools.dotted", "--time", "earliest");
        run("offsets: max timestamp", "GetOffsetShell", "--topic", "tools-main", "--time", "max-timestamp");
        Path plan = Files.createTempFile("records", ".json");
        Files.writeString(plan, "{\"version\":1,\"partitions\":[{\"topic\":\"tools.dotted\",\"partition\":0,"
            + "\"offset\":20}]}");
        run("delete records", "DeleteRecordsCommand", "--offset-json-file", plan.toString());
        run("offsets: after deleting", "GetOffsetShell", "--topic", "tools.dotted", "--time", "earliest");
        Files.delete(plan);
    }

    private static void groups() throws Exception {
        run("console consumer: in a group", "consumer.ConsoleConsumer", "--topic", "tools.dotted", "--group",
            "tools-group", "--from-beginning", "--max-messages", "50", "--timeout-ms", "120000");
        group("list", "--list");
        group("describe", "--describe", "--group", "tools-group");
        group("describe state", "--describe", "--group", "tools-group", "--state");
        group("describe members", "--describe", "--group", "tools-group", "--members", "--verbose");
        group("describe unknown", "--describe", "--group", "tools-nobody");
        for (String to : List.of("--to-earliest", "--to-latest", "--to-current")) {
            group("reset " + to, "--reset-offsets", "--group", "tools-group", "--topic", "tools.dotted", to, "--execute");
        }
        group("reset to an offset", "--reset-offsets", "--group", "tools-group", "--topic", "tools.dotted:0",
            "--to-offset", "33", "--execute");
        group("reset by a shift", "--reset-offsets", "--group", "tools-group", "--topic", "tools.dotted", "--shift-by",
            "-3", "--dry-run");
        group("reset to a time", "--reset-offsets", "--group", "tools-group", "--topic", "tools.dotted",
            "--to-datetime", "2023-01-01T00:00:00.000", "--execute");
        group("export", "--reset-offsets", "--group", "tools-group", "--topic", "tools.dotted", "--to-current",
            "--export");
        group("delete offsets", "--delete-offsets", "--group", "tools-group", "--topic", "tools.dotted");
        group("describe after", "--describe", "--group", "tools-group", "--offsets");
        group("delete", "--delete", "--group", "tools-group");
        group("delete unknown", "--delete", "--group", "tools-nobody");
        group("list after", "--list", "--state");
        consumerProtocol();
    }

    /** A group of the consumer protocol: what it left is looked at, and then one that has members. */
    private static void consumerProtocol() throws Exception {
        String name = "tools-kip848";
        run("console consumer: of the consumer protocol", "consumer.ConsoleConsumer", "--topic", "tools.dotted", "--group",
            name, "--command-property", "group.protocol=consumer", "--from-beginning", "--max-messages", "50",
            "--timeout-ms", "120000");
        group("kip848: list", "--list", "--type", "consumer", "--state", "stable,empty");
        group("kip848: describe", "--describe", "--group", name);
        group("kip848: reset", "--reset-offsets", "--group", name, "--topic", "tools.dotted", "--to-earliest", "--execute");
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "group.id", name, "client.id", name,
            "group.protocol", "consumer", "group.instance.id", "tools-instance", "enable.auto.commit", "false");
        try (KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of("tools.dotted"));
            // Its heartbeats say that it has what it was told, and go on by themselves.
            Script.await("an assignment", () -> {
                consumer.poll(Duration.ofMillis(100));
                return !consumer.assignment().isEmpty() && Script.get(admin.describeConsumerGroups(List.of(name)).all())
                    .get(name).groupState() == GroupState.STABLE;
            });
            group("kip848: describe with a member", "--describe", "--group", name);
            group("kip848: describe verbosely", "--describe", "--group", name, "--verbose");
            group("kip848: describe members", "--describe", "--group", name, "--members", "--verbose");
            group("kip848: describe state", "--describe", "--group", name, "--state", "--verbose");
            group("kip848: reset with a member", "--reset-offsets", "--group", name, "--topic", "tools.dotted",
                "--to-latest", "--execute");
            group("kip848: delete offsets with a member", "--delete-offsets", "--group", name, "--topic", "tools.dotted");
            group("kip848: delete with a member", "--delete", "--group", name);
        }
        // The place of a member with a name is kept for a while.
        group("kip848: describe when it is away", "--describe", "--group", name, "--members", "--verbose");
    }

    private static void group(String what, String... arguments) {
        run("groups: " + what, "consumer.group.ConsumerGroupCommand", arguments);
    }

    private static void settings() {
        // The tool has moved in 4.4.
        String configs = Script.isThere(TOOLS + "ConfigCommand") ? "ConfigCommand" : "kafka.admin.ConfigCommand";
        run("settings: alter", configs, "--alter", "--entity-type", "topics", "--entity-name", "tools-main",
            "--add-config", "segment.ms=3600000,cleanup.policy=[compact,delete]");
        settle();
        run("settings: describe", configs, "--describe", "--entity-type", "topics", "--entity-name", "tools-main");
        run("settings: delete", configs, "--alter", "--entity-type", "topics", "--entity-name", "tools-main",
            "--delete-config", "cleanup.policy");
        run("settings: delete what is not set", configs, "--alter", "--entity-type", "topics", "--entity-name",
            "tools-main", "--delete-config", "cleanup.policy");
        run("settings: bad value", configs, "--alter", "--entity-type", "topics", "--entity-name", "tools-main",
            "--add-config", "segment.ms=later");
        settle();
        run("settings: describe after", configs, "--describe", "--entity-type", "topics", "--entity-name", "tools-main");
        run("settings: broker", configs, "--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config",
            "log.cleaner.delete.retention.ms=86400001");
        settle();
        run("settings: describe broker", configs, "--describe", "--entity-type", "brokers", "--entity-name", "1");
        run("settings: broker back", configs, "--alter", "--entity-type", "brokers", "--entity-name", "1",
            "--delete-config", "log.cleaner.delete.retention.ms");
        run("settings: unknown topic", configs, "--describe", "--entity-type", "topics", "--entity-name", "nobody");
    }

    private static void cluster() {
        run("cluster id", "ClusterTool", "cluster-id");
        run("quorum: status", "MetadataQuorumCommand", "describe", "--status");
        run("features", "FeatureCommand", "describe");
        run("log directories", "LogDirsCommand", "--describe", "--topic-list", "tools.dotted");
        run("broker API versions", "BrokerApiVersionsCommand");
    }

    private static void verifiable() throws Exception {
        // These two end by the end of their process, so they get one.
        run("topics: create for the verifiable tools", "TopicCommand", "--create", "--topic", "tools-verifiable");
        settle();
        List<String> produced = separately("VerifiableProducer", "--topic", "tools-verifiable", "--max-messages", "200",
            "--value-prefix", "7", "--acks", "-1");
        Map<String, Integer> sent = events(produced);
        emit("verifiable producer", sent);
        // What it has read is the outcome, not in which pieces it came.
        Map<String, Integer> read = events(separately("VerifiableConsumer", "--topic", "tools-verifiable", "--group-id",
            "tools-verifiable", "--max-messages", "200", "--verbose", "--reset-policy", "earliest"));
        emit("verifiable consumer", List.of(read.getOrDefault("record_data", 0), read.keySet()));
        group("describe the verifiable consumer's", "--describe", "--group", "tools-verifiable");
    }

    private static Map<String, Integer> events(List<String> lines) throws Exception {
        Map<String, Integer> events = new TreeMap<>();
        for (String line : lines) {
            if (line.startsWith("{")) {
                events.merge(JSON.readTree(line).get("name").asText(), 1, Integer::sum);
            }
        }
        return events;
    }

    private static List<String> separately(String tool, String... arguments) throws Exception {
        List<String> command = new ArrayList<>(List.of("java"));
        // The archive of classes is among them.
        command.addAll(ManagementFactory.getRuntimeMXBean().getInputArguments());
        command.addAll(List.of("-cp", System.getProperty("java.class.path"), TOOLS + tool, "--bootstrap-server", bootstrap));
        command.addAll(List.of(arguments));
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        CompletableFuture<byte[]> output = CompletableFuture.supplyAsync(() -> {
            try {
                return process.getInputStream().readAllBytes();
            } catch (java.io.IOException error) {
                return error.toString().getBytes(StandardCharsets.UTF_8);
            }
        });
        if (!process.waitFor(Script.PATIENCE.toSeconds(), TimeUnit.SECONDS)) {
            process.destroyForcibly();
            Script.giveUp("the end of " + tool + ": " + new String(output.get(), StandardCharsets.UTF_8));
        }
        return new String(output.get(), StandardCharsets.UTF_8).lines().toList();
    }

    private static void deletion() {
        run("topics: delete", "TopicCommand", "--delete", "--topic", "tools-assigned");
        run("topics: delete unknown", "TopicCommand", "--delete", "--topic", "tools-nobody");
        settle();
        run("topics: list after", "TopicCommand", "--list", "--topic", "tools.*");
    }

    // ---- how a tool runs -------------------------------------------------------------------------------------------

    private static void run(String step, String tool, String... arguments) {
        String name = tool.startsWith("kafka.") ? tool : TOOLS + tool;
        List<String> all = new ArrayList<>(List.of(arguments));
        // Tools with subcommands of their own take the address before or after them.
        boolean addressFirst = tool.equals("MetadataQuorumCommand") || tool.equals("FeatureCommand");
        all.addAll(addressFirst ? 0 : all.size(), List.of("--bootstrap-server", bootstrap));
        emit(step, shown(step, ToolRun.of(name, all.toArray(new String[0]))));
    }

    private static void produce(String step, String input, String... arguments) {
        List<String> all = new ArrayList<>(List.of(arguments));
        all.addAll(List.of("--bootstrap-server", bootstrap));
        var stdin = System.in;
        System.setIn(new ByteArrayInputStream(input.getBytes(StandardCharsets.UTF_8)));
        emit(step, shown(step, ToolRun.of(TOOLS + "ConsoleProducer", all.toArray(new String[0]))));
        System.setIn(stdin);
    }

    private static final Pattern TIMES = Pattern.compile("\\b1[0-9]{12}\\b|\\[?20\\d\\d-\\d\\d-\\d\\d[ T][\\d:,.]+\\]?");
    private static final Pattern IDS = Pattern.compile("(TopicId: |\\()[A-Za-z0-9_-]{22}\\b");
    private static final Pattern MEMBERS = Pattern.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
        + "|(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{22}(?![A-Za-z0-9_-])");
    private static final Pattern DIRECTORIES = Pattern.compile("(\"logDir\":|CurrentVoters:.*\"directoryId\": )\"[^\"]*\"");
    private static final Pattern NUMBERS = Pattern.compile(
        "(LeaderEpoch|HighWatermark|MaxFollowerLag|MaxFollowerLagTimeMs|Epoch|avg_throughput|\"offset\"|\"totalBytes\""
            + "|\"usableBytes\"|Finalized features epoch|PRODUCER_ID|target_throughput)(\"?:\\s*)-?[0-9.]+");

    /** Groups and broker settings of the other clients' scripts, which may run at the same time. */
    private static final Pattern OTHERS =
        Pattern.compile("(java|rdkafka|aio|franz|sarama|kafkajs|classic-requests)-|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
            + "|\\s*log\\.cleaner\\.backoff\\.ms=");

    /** The lines without times, ids and sizes of the machine, and without the Java stack beneath an error. */
    private static List<String> shown(String step, String output) {
        List<String> lines = new ArrayList<>();
        for (String line : output.split("\n")) {
            if (line.isBlank() || OTHERS.matcher(line).lookingAt() || line.startsWith("\tat ") || line.contains(" WARN ") || line.contains("SLF4J")) {
                continue;
            }
            line = TIMES.matcher(line).replaceAll("TIME");
            line = IDS.matcher(line).replaceAll("$1ID");
            // With a number of five digits it is as long as an id.
            line = line.replaceAll("console-consumer-[0-9]+", "console-consumer-N");
            line = MEMBERS.matcher(line).replaceAll("MEMBER");
            line = DIRECTORIES.matcher(line).replaceAll("$1\"DIRECTORY\"");
            int configs = line.indexOf("Configs: ");
            if (configs >= 0) {
                // In the order of a hash table.
                String[] sorted = line.substring(configs + 9).split(",");
                Arrays.sort(sorted);
                line = line.substring(0, configs + 9) + String.join(",", sorted);
            }
            line = line.replaceAll("(CONTROLLER://127.0.0.1:)[0-9]+", "$1PORT");
            line = NUMBERS.matcher(line).replaceAll("$1$2N");
            // The width of a column follows the longest value in it.
            lines.add(line.strip().replaceAll("[ \t]+", " "));
        }
        if (step.startsWith("groups: list")) {
            // In the order of a hash table.
            Collections.sort(lines);
        }
        return lines;
    }

    private static void emit(String step, Object outcome) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("step", step);
        line.put("outcome", outcome);
        try {
            OUT.println(JSON.writeValueAsString(line));
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private static void settle() {
        Script.settle(admin);
    }
}
