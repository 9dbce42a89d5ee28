// The conformance script of client telemetry (KIP-714): `TelemetryScript BOOTSTRAP PUSHED`, where PUSHED is where the
// broker shows what clients have pushed: the address of Ottla's metrics, or the file that PushedMetrics writes.
//
// Subscriptions are made with Kafka's own tool. First each answer on the wire is looked at, with requests that a client
// of Kafka's would send and with such as it would not; then a producer, a consumer and an admin client push by
// themselves, and what arrives of them is compared by name, and where it is a count that is known, by value.

import java.io.*;
import java.net.*;
import java.net.http.*;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.time.Duration;
import java.util.*;
import java.util.regex.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.requests.*;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.*;

public final class TelemetryScript extends Script {
    private static final String TOPIC = "telemetry";
    private static final int RECORDS = 300;
    private final String pushed;

    private TelemetryScript(String bootstrap, String pushed) {
        super(bootstrap);
        this.pushed = pushed;
    }

    public static void main(String[] arguments) throws Exception {
        TelemetryScript script = new TelemetryScript(arguments[0], arguments[1]);
        script.offered();
        script.unsubscribed();
        script.subscriptions();
        script.answers();
        script.refusals();
        script.pushedByClients();
        script.unsubscribedAgain();
        script.admin.close();
        System.exit(0);
    }

    // ---- steps -----------------------------------------------------------------------------------------------------

    private void offered() throws Exception {
        try (Raw raw = new Raw("telemetry-asks")) {
            step("the APIs are offered", () -> {
                var request = new ApiVersionsRequest(new ApiVersionsRequestData().setClientSoftwareName("script")
                    .setClientSoftwareVersion("1"), (short) 3);
                var response = (ApiVersionsResponse) raw.ask(ApiKeys.API_VERSIONS, request);
                return response.data().apiKeys().stream().filter(api -> api.apiKey() == 71 || api.apiKey() == 72)
                    .map(api -> api.apiKey() + " " + api.minVersion() + "-" + api.maxVersion()).sorted().toList();
            });
        }
    }

    private void unsubscribed() throws Exception {
        try (Raw raw = new Raw("telemetry-nobody")) {
            step("a client that nobody asks for anything", () -> shown(raw.get(Uuid.ZERO_UUID)));
        }
        String id = String.valueOf(Uuid.randomUuid());
        step("the instance id of a client", () -> {
            try (Producer<byte[], byte[]> producer = producer(Map.of("enable.metrics.push", "true"))) {
                return producer.clientInstanceId(PATIENCE).toString().length() == id.length();
            }
        });
        step("the instance id of a client that does not push", () -> {
            try (Producer<byte[], byte[]> producer = producer(Map.of("enable.metrics.push", "false"))) {
                return producer.clientInstanceId(PATIENCE).toString().length();
            }
        });
    }

    private void subscriptions() {
        subscribe("subscribe", "--alter", "--name", "script", "--metrics",
            "org.apache.kafka.producer.record.,org.apache.kafka.consumer.fetch.,org.apache.kafka.admin.client.",
            "--interval", "1000", "--match", "client_id=telemetry-push.*");
        subscribe("subscribe another, for its own interval", "--alter", "--name", "other", "--metrics", "x.",
            "--interval", "500", "--match", "client_id=telemetry-both.*,client_software_name=apache-kafka-java");
        subscribe("subscribe to all", "--alter", "--name", "all", "--metrics", "*", "--interval", "60000", "--match",
            "client_id=telemetry-all");
        subscribe("subscribe too often", "--alter", "--name", "bad", "--interval", "10");
        subscribe("subscribe too seldom", "--alter", "--name", "bad", "--interval", "99999999");
        subscribe("subscribe by a property that is none", "--alter", "--name", "bad", "--match", "colour=red");
        subscribe("subscribe by a pattern that is none", "--alter", "--name", "bad", "--match", "client_id=(((");
        settle();
        subscribe("describe", "--describe", "--name", "script");
        subscribe("list", "--list");
        step("settings of a subscription", () -> {
            var resource = new org.apache.kafka.common.config.ConfigResource(
                org.apache.kafka.common.config.ConfigResource.Type.CLIENT_METRICS, "script");
            return get(admin.describeConfigs(List.of(resource)).all()).get(resource).entries().stream()
                .map(entry -> entry.name() + "=" + entry.value() + " " + entry.source()).sorted().toList();
        });
        settle();
    }

    private void subscribe(String what, String... arguments) {
        List<String> all = new ArrayList<>(List.of("--bootstrap-server", bootstrap));
        all.addAll(List.of(arguments));
        step(what, () -> ToolRun.of("org.apache.kafka.tools.ClientMetricsCommand", all.toArray(new String[0]))
            .lines().filter(line -> !line.isBlank() && !line.startsWith("\tat ")).sorted().toList());
    }

    private void answers() throws Exception {
        for (String client : List.of("telemetry-pushes", "telemetry-all", "telemetry-both", "nobody")) {
            try (Raw raw = new Raw(client)) {
                step("what " + client + " is asked for", () -> shown(raw.get(Uuid.ZERO_UUID)));
            }
        }
        try (Raw raw = new Raw("telemetry-pushes")) {
            step("whether counts are asked for as differences", () ->
                raw.get(Uuid.ZERO_UUID).data().deltaTemporality());
        }
    }

    private void refusals() throws Exception {
        byte[] metrics = metrics("org.apache.kafka.producer.record.made.up", 5);
        // What comes too early comes from clients of a long interval, for which no pause of the machine is long enough.
        try (Raw raw = new Raw("telemetry-all")) {
            var asked = raw.get(Uuid.ZERO_UUID).data();
            Uuid id = asked.clientInstanceId();
            int subscription = asked.subscriptionId();
            step("ask again at once", () -> shown(raw.get(id)));
            step("push", () -> raw.push(id, subscription, CompressionType.NONE.id, metrics, false));
            step("push again at once", () -> raw.push(id, subscription, CompressionType.NONE.id, metrics, false));
        }
        try (Raw raw = new Raw("telemetry-all")) {
            var asked = raw.get(Uuid.ZERO_UUID).data();
            Uuid id = asked.clientInstanceId();
            int subscription = asked.subscriptionId();
            step("push for another subscription", () -> raw.push(id, subscription + 1, (byte) 0, metrics, false));
            step("ask again after that", () -> shown(raw.get(id)));
            step("push for the right one", () -> raw.push(id, subscription, (byte) 0, metrics, false));
        }
        try (Raw raw = new Raw("telemetry-pushes")) {
            var asked = raw.get(Uuid.ZERO_UUID).data();
            Uuid id = asked.clientInstanceId();
            int subscription = asked.subscriptionId();
            step("push in a compression that is none", () -> raw.push(id, subscription, (byte) 9, metrics, false));
            step("ask again after that too", () -> shown(raw.get(id)));
            for (CompressionType codec : CompressionType.values()) {
                Thread.sleep(1100);
                step("push with " + codec, () -> {
                    var builder = org.apache.kafka.common.compress.Compression.of(codec).build();
                    try (var out = new org.apache.kafka.common.utils.ByteBufferOutputStream(512)) {
                        try (var compressed = builder.wrapForOutput(out, (byte) 2)) {
                            compressed.write(metrics);
                        }
                        out.buffer().flip();
                        byte[] bytes = new byte[out.buffer().remaining()];
                        out.buffer().get(bytes);
                        return raw.push(id, subscription, codec.id, bytes, false);
                    }
                });
            }
            Thread.sleep(1100);
            step("push what is no metrics", () -> raw.push(id, subscription, (byte) 0, bytes("no metrics"), false));
            Thread.sleep(1100);
            step("push what is not compressed as it says", () -> raw.push(id, subscription, (byte) 4, metrics, false));
            Thread.sleep(1100);
            step("push too much", () -> raw.push(id, subscription, (byte) 0, new byte[1_048_577], false));
            Thread.sleep(1100);
            step("push nothing", () -> raw.push(id, subscription, (byte) 0, new byte[0], false));
            step("push for the last time, before it is time", () -> raw.push(id, subscription, (byte) 0, metrics, true));
            Thread.sleep(1100);
            step("push after the last time", () -> raw.push(id, subscription, (byte) 0, metrics, false));
            step("ask after the last time", () -> shown(raw.get(id)));
            for (Uuid reserved : List.of(Uuid.ZERO_UUID, Uuid.ONE_UUID)) {
                step("push as " + reserved, () -> raw.push(reserved, subscription, (byte) 0, metrics, false));
            }
            step("ask as " + Uuid.ONE_UUID, () -> shown(raw.get(Uuid.ONE_UUID)));
            step("push as one that has never asked", () ->
                raw.push(new Uuid(7, 7), subscription, (byte) 0, metrics, false));
        }
    }

    /** Kafka's own clients, and what arrives of them. */
    private void pushedByClients() {
        step("topic", () -> {
            // The script of log directories, which runs on the same broker, cordons all of them for a while.
            await("a log directory for a topic", () -> {
                Object outcome = outcome(() -> get(admin.createTopics(List.of(new NewTopic(TOPIC, 1, (short) 1))).all()));
                return !String.valueOf(outcome).startsWith("! InvalidReplicationFactorException");
            });
            settle();
            return get(admin.describeTopics(List.of(TOPIC)).allTopicNames()).get(TOPIC).partitions().size();
        });
        step("what clients push", () -> {
            Map<String, String> settings = Map.of("enable.metrics.push", "true");
            Map<String, String> ofProducer = new HashMap<>(settings);
            ofProducer.put("client.id", "telemetry-push-producer");
            Map<String, String> ofConsumer = new HashMap<>(settings);
            ofConsumer.putAll(Map.of("client.id", "telemetry-push-consumer", "group.id", "telemetry",
                "auto.offset.reset", "earliest"));
            Admin asking = Admin.create(Map.of("bootstrap.servers", bootstrap, "client.id", "telemetry-push-admin",
                "enable.metrics.push", "true"));
            try (asking; Producer<byte[], byte[]> producer = producer(ofProducer);
                 Consumer<byte[], byte[]> consumer = consumer(ofConsumer)) {
                consumer.subscribe(List.of(TOPIC));
                for (int i = 0; i < RECORDS; i++) {
                    get(producer.send(new ProducerRecord<>(TOPIC, bytes("value-" + i))));
                }
                int[] read = {0};
                await("what clients push", () -> {
                    read[0] += consumer.poll(Duration.ofMillis(200)).count();
                    get(asking.listTopics().names());
                    return isAllThere(arrived(), read[0]);
                });
            }
            Map<String, Object> shown = new TreeMap<>();
            arrived().forEach((client, values) -> {
                if (client.startsWith("telemetry-push-")) {
                    shown.put(client, values.keySet());
                }
            });
            return shown;
        });
        step("records that the producer says it has sent", () -> value("telemetry-push-producer",
            "client_org_apache_kafka_producer_record_send_total"));
        step("records that the consumer says it has read", () -> value("telemetry-push-consumer",
            "client_org_apache_kafka_consumer_fetch_manager_records_consumed_total"));
    }

    private boolean isAllThere(Map<String, Map<String, Double>> arrived, int read) {
        var sent = arrived.getOrDefault("telemetry-push-producer", Map.of());
        return read == RECORDS && arrived.containsKey("telemetry-push-admin")
            && sent.getOrDefault("client_org_apache_kafka_producer_record_send_total", 0.0) >= RECORDS
            // Of the client and of its topic.
            && arrived.getOrDefault("telemetry-push-consumer", Map.of()).getOrDefault(
                "client_org_apache_kafka_consumer_fetch_manager_records_consumed_total", 0.0) >= 2 * RECORDS;
    }

    private Object value(String client, String metric) throws Exception {
        return arrived().getOrDefault(client, Map.of()).get(metric);
    }

    private void unsubscribedAgain() throws Exception {
        for (String name : List.of("script", "other", "all")) {
            subscribe("unsubscribe " + name, "--delete", "--name", name);
        }
        settle();
        subscribe("list when all are gone", "--list");
        try (Raw raw = new Raw("telemetry-pushes")) {
            step("what a client is asked for then", () -> shown(raw.get(Uuid.ZERO_UUID)));
        }
    }

    // ---- the wire --------------------------------------------------------------------------------------------------

    private static byte[] metrics(String name, long value) {
        NumberDataPoint point = NumberDataPoint.newBuilder().setAsInt(value).build();
        Metric metric = Metric.newBuilder().setName(name).setGauge(Gauge.newBuilder().addDataPoints(point)).build();
        return MetricsData.newBuilder().addResourceMetrics(ResourceMetrics.newBuilder().addScopeMetrics(
            ScopeMetrics.newBuilder().addMetrics(metric))).build().toByteArray();
    }

    private static Object shown(GetTelemetrySubscriptionsResponse response) {
        var data = response.data();
        Map<String, Object> shown = new TreeMap<>();
        shown.put("error", Errors.forCode(data.errorCode()).name());
        shown.put("throttled", data.throttleTimeMs());
        shown.put("hasInstanceId", !data.clientInstanceId().equals(Uuid.ZERO_UUID));
        shown.put("hasSubscriptionId", data.subscriptionId() != 0);
        shown.put("compression", data.acceptedCompressionTypes());
        shown.put("interval", data.pushIntervalMs());
        shown.put("maxBytes", data.telemetryMaxBytes());
        shown.put("metrics", sorted(data.requestedMetrics()));
        return shown;
    }

    /** A connection that sends one request after the other. */
    private final class Raw implements Closeable {
        private final Socket socket;
        private final String clientId;
        private int correlation;

        Raw(String clientId) throws IOException {
            this.clientId = clientId;
            int colon = bootstrap.lastIndexOf(':');
            socket = new Socket(bootstrap.substring(0, colon), Integer.parseInt(bootstrap.substring(colon + 1)));
            socket.setSoTimeout((int) PATIENCE.toMillis());
            // As every client does first; without it the broker does not know the client's software.
            ask(ApiKeys.API_VERSIONS, new ApiVersionsRequest(new ApiVersionsRequestData()
                .setClientSoftwareName("script").setClientSoftwareVersion("1"), (short) 3));
        }

        GetTelemetrySubscriptionsResponse get(Uuid id) throws IOException {
            var data = new GetTelemetrySubscriptionsRequestData().setClientInstanceId(id);
            var request = new GetTelemetrySubscriptionsRequest.Builder(data, true).build((short) 0);
            return (GetTelemetrySubscriptionsResponse) ask(ApiKeys.GET_TELEMETRY_SUBSCRIPTIONS, request);
        }

        Object push(Uuid id, int subscription, byte codec, byte[] metrics, boolean isLast) throws IOException {
            var data = new PushTelemetryRequestData().setClientInstanceId(id).setSubscriptionId(subscription)
                .setCompressionType(codec).setMetrics(ByteBuffer.wrap(metrics)).setTerminating(isLast);
            var request = new PushTelemetryRequest.Builder(data, true).build((short) 0);
            var answer = ((PushTelemetryResponse) ask(ApiKeys.PUSH_TELEMETRY, request)).data();
            return List.of(Errors.forCode(answer.errorCode()).name(), answer.throttleTimeMs());
        }

        AbstractResponse ask(ApiKeys api, AbstractRequest request) throws IOException {
            RequestHeader header = new RequestHeader(api, request.version(), clientId, correlation++);
            ByteBuffer bytes = request.serializeWithHeader(header);
            DataOutputStream out = new DataOutputStream(new BufferedOutputStream(socket.getOutputStream()));
            out.writeInt(bytes.remaining());
            out.write(bytes.array(), bytes.arrayOffset() + bytes.position(), bytes.remaining());
            out.flush();
            DataInputStream in = new DataInputStream(socket.getInputStream());
            byte[] answer = new byte[in.readInt()];
            in.readFully(answer);
            return AbstractResponse.parseResponse(ByteBuffer.wrap(answer), header);
        }

        @Override
        public void close() throws IOException {
            socket.close();
        }
    }

    // ---- what has arrived ------------------------------------------------------------------------------------------

    private static final Pattern SAMPLE = Pattern.compile("(client_[a-zA-Z0-9_]+)\\{(.*)} (\\S+)(?: .*)?");
    private static final Pattern CLIENT_ID = Pattern.compile("client_id=\"([^\"]*)\"");

    /** By client id and metric the sum over what differs in labels, with the names that Ottla gives. */
    private Map<String, Map<String, Double>> arrived() throws Exception {
        Map<String, Map<String, Double>> arrived = new TreeMap<>();
        if (pushed.startsWith("http://")) {
            var request = HttpRequest.newBuilder(URI.create(pushed)).build();
            String text = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body();
            for (String line : text.split("\n")) {
                Matcher sample = SAMPLE.matcher(line);
                if (sample.matches()) {
                    Matcher id = CLIENT_ID.matcher(sample.group(2));
                    String client = id.find() ? id.group(1) : "?";
                    arrived.computeIfAbsent(client, key -> new TreeMap<>()).merge(sample.group(1),
                        Double.parseDouble(sample.group(3)), Double::sum);
                }
            }
            return arrived;
        }
        if (!Files.exists(Path.of(pushed))) {
            return arrived;
        }
        for (String line : Files.readString(Path.of(pushed), StandardCharsets.UTF_8).split("\n")) {
            String[] parts = line.split("\t");
            if (parts.length == 4) {
                String name = "client_" + parts[1].replaceAll("[^a-zA-Z0-9_]", "_");
                if (!parts[2].equals("gauge") && !name.endsWith("_total")) {
                    name += "_total";
                }
                Map<String, Double> values = arrived.computeIfAbsent(parts[0], key -> new TreeMap<>());
                double value = Double.parseDouble(parts[3]);
                values.merge(name, value, parts[2].equals("delta") ? Double::sum : (before, after) -> after);
            }
        }
        return arrived;
    }
}
