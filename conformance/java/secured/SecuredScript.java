// The Java client on listeners with TLS and logins: compiled with the files beside it and those of `client`, and run as
// `SecuredScript BOOTSTRAP PLACE`, where the file PLACE has the addresses of the listeners and the folder of the certificates.
// Users, rights and quotas are there already (`SetUp`).

import java.io.File;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.resource.*;

public final class SecuredScript extends Script {
    static final String TOPIC = "secured-secured-java";
    static final String PREFIX = "secured-java-";
    private static final String MODULES = "org.apache.kafka.common.security.";

    final Map<?, ?> place;

    private SecuredScript(String bootstrap, Map<?, ?> place) {
        super(bootstrap);
        this.place = place;
    }

    public static void main(String[] arguments) throws Exception {
        SecuredScript script = of(arguments);
        script.allowed();
        script.refused();
        script.revoked();
        script.removed();
        script.throttled();
        script.reauthenticated();
        new TokenSteps(script).run();
        System.exit(0);
    }

    static SecuredScript of(String[] arguments) throws Exception {
        return new SecuredScript(arguments[0], JSON.readValue(new File(arguments[1]), Map.class));
    }

    /** How a client gets in: its listener, and what it shows. */
    record Way(String listener, String protocol, String mechanism) {
        static final List<Way> ALL = List.of(
            new Way("sasl", "SASL_PLAINTEXT", "PLAIN"), new Way("sasl", "SASL_PLAINTEXT", "SCRAM-SHA-256"),
            new Way("saslssl", "SASL_SSL", "PLAIN"), new Way("saslssl", "SASL_SSL", "SCRAM-SHA-256"),
            new Way("saslssl", "SASL_SSL", "SCRAM-SHA-512"), new Way("ssl", "SSL", ""));
        static final Way USUAL = ALL.get(4);

        @Override
        public String toString() {
            return mechanism.isEmpty() ? protocol : protocol + " " + mechanism;
        }
    }

    /** What a client needs that gets in this way as this user. */
    Map<String, String> login(Way way, String user, String password) {
        Map<String, String> settings = new HashMap<>(Map.of("bootstrap.servers", (String) place.get(way.listener),
            "security.protocol", way.protocol));
        if (way.protocol.endsWith("SSL")) {
            settings.put("ssl.truststore.type", "PEM");
            settings.put("ssl.truststore.location", certificate("authority"));
        }
        if (way.protocol.startsWith("SASL")) {
            settings.put("sasl.mechanism", way.mechanism);
            String module = way.mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
            settings.put("sasl.jaas.config", MODULES + module + " required username=\"" + user + "\" password=\""
                + password + "\";");
        } else if (user != null) {
            settings.put("ssl.keystore.type", "PEM");
            settings.put("ssl.keystore.location", certificate(user));
        }
        return settings;
    }

    Map<String, String> login(String user) {
        return login(Way.USUAL, user, SetUp.password(user));
    }

    String certificate(String name) {
        return place.get("certificates") + "/" + name + ".pem";
    }

    Admin admin(Map<String, String> login) {
        Map<String, Object> settings = new HashMap<>(Map.of("default.api.timeout.ms", "60000",
            "request.timeout.ms", "30000", "client.id", "secured-admin"));
        settings.putAll(login);
        return Admin.create(settings);
    }

    Map<String, String> with(Map<String, String> settings, String... more) {
        Map<String, String> all = new HashMap<>(settings);
        for (int i = 0; i < more.length; i += 2) {
            all.put(more[i], more[i + 1]);
        }
        return all;
    }

    /** An error with its causes, and what two runs cannot share left out. */
    static Object shown(Step step) {
        try {
            return step.run();
        } catch (Exception error) {
            List<String> causes = new ArrayList<>();
            for (Throwable cause = rootOf(error); cause != null; cause = cause.getCause()) {
                causes.add(cause.getClass().getSimpleName() + ": " + masked(String.valueOf(cause.getMessage())));
            }
            return causes;
        }
    }

    /** The last cause of an error: a producer wraps it, or not, as its threads meet it. */
    static Object lastOf(Step step) {
        return shown(step) instanceof List<?> causes ? causes.get(causes.size() - 1) : "done";
    }

    static String masked(String message) {
        // Which alert says that a certificate will not do is the TLS library's choice.
        return message.replaceAll("fatal alert: \\w+", "fatal alert")
            .replaceAll("Request .* needs ", "Request needs ")
            .replaceAll("deadlineMs=\\d+, tries=\\d+, nextAllowedTryMs=-?\\d+", "…")
            .replaceAll("(within|after|for|in the last|expired:) \\d+ ?ms", "$1 … ms")
            .replaceAll("\\d+ ms has passed", "… ms has passed");
    }

    static void shownStep(String name, Step step) {
        step(name, () -> shown(step));
    }

    void send(Producer<byte[], byte[]> producer, String topic, int length) {
        get(producer.send(new ProducerRecord<>(topic, 0, T0, bytes("k"), new byte[length])));
    }

    private void allowed() {
        for (Way way : Way.ALL) {
            String user = way.protocol.equals("SSL") ? "client" : SetUp.ALICE;
            Map<String, String> login = login(way, user, SetUp.password(user));
            shownStep("allowed " + way, () -> {
                try (Producer<byte[], byte[]> producer = producer(login);
                     Consumer<byte[], byte[]> consumer = consumer(with(login, "group.id", "secured-" + way.toString().replace(' ', '-'),
                         "auto.offset.reset", "earliest"));
                     Admin admin = admin(login)) {
                    send(producer, TOPIC, 100_000);
                    consumer.subscribe(List.of(TOPIC));
                    ConsumerRecord<byte[], byte[]> record = first(consumer);
                    consumer.commitSync();
                    return List.of(record.offset(), record.value().length,
                        get(admin.describeTopics(List.of(TOPIC)).allTopicNames()).size(),
                        sorted(get(admin.listTopics().names())));
                }
            });
        }
    }

    // ---- who does not get in -------------------------------------------------------------------------------------------

    private void refused() throws Exception {
        Map<String, Map<String, String>> cases = new LinkedHashMap<>();
        for (Way way : Way.ALL) {
            if (way.protocol.startsWith("SASL")) {
                cases.put(way + ", wrong password", login(way, SetUp.ALICE, "wrong"));
                cases.put(way + ", unknown user", login(way, "nobody", "nobody-secret"));
                cases.put(way + ", the password of another", login(way, SetUp.ALICE, SetUp.password("carol")));
            }
        }
        Way mutual = Way.ALL.get(5);
        cases.put("mechanism that is not enabled", login(new Way("sasl", "SASL_PLAINTEXT", "SCRAM-SHA-512"),
            SetUp.ALICE, SetUp.password(SetUp.ALICE)));
        cases.put("SSL, an authority that the client does not trust",
            with(login(mutual, "client", null), "ssl.truststore.location", certificate("stranger")));
        cases.put("SASL_SSL, an authority that the client does not trust",
            with(login(SetUp.ALICE), "ssl.truststore.location", certificate("stranger")));
        cases.put("SSL, no certificate", login(mutual, null, null));
        cases.put("SSL, an expired certificate", login(mutual, "expired", null));
        cases.put("SSL, a certificate of another authority", login(mutual, "foreign", null));
        cases.put("SASL_SSL, only TLS 1.2, wrong password", with(login(Way.USUAL, SetUp.ALICE, "wrong"),
            "ssl.enabled.protocols", "TLSv1.2", "ssl.protocol", "TLSv1.2"));
        cases.put("SSL, only TLS 1.2, no certificate", with(login(mutual, null, null),
            "ssl.enabled.protocols", "TLSv1.2", "ssl.protocol", "TLSv1.2"));
        cases.put("SSL, only TLS 1.2, an expired certificate", with(login(mutual, "expired", null),
            "ssl.enabled.protocols", "TLSv1.2", "ssl.protocol", "TLSv1.2"));
        cases.put("SSL, only TLS 1.2, a certificate of another authority", with(login(mutual, "foreign", null),
            "ssl.enabled.protocols", "TLSv1.2", "ssl.protocol", "TLSv1.2"));
        cases.put("PLAINTEXT at a listener of SASL", Map.of("bootstrap.servers", (String) place.get("sasl")));
        cases.put("PLAINTEXT at a listener of SSL", Map.of("bootstrap.servers", (String) place.get("ssl")));
        cases.put("SASL at a listener of SASL_SSL", login(new Way("saslssl", "SASL_PLAINTEXT", "PLAIN"),
            SetUp.ALICE, SetUp.password(SetUp.ALICE)));
        cases.put("SASL_SSL at a listener of SASL", login(new Way("sasl", "SASL_SSL", "PLAIN"), SetUp.ALICE,
            SetUp.password(SetUp.ALICE)));
        cases.put("SASL at a listener of SSL", login(new Way("ssl", "SASL_PLAINTEXT", "PLAIN"), SetUp.ALICE,
            SetUp.password(SetUp.ALICE)));
        cases.put("SASL_SSL at a listener of SSL", login(new Way("ssl", "SASL_SSL", "PLAIN"), SetUp.ALICE,
            SetUp.password(SetUp.ALICE)));
        cases.put("SSL at a listener of SASL_SSL", login(new Way("saslssl", "SSL", ""), "client", null));
        // With the wrong protocol, the client tries again and again until it gives up.
        cases.replaceAll((name, login) -> name.contains(" at a listener of ")
            ? with(login, "default.api.timeout.ms", "6000", "request.timeout.ms", "5000") : login);
        ExecutorService threads = Executors.newFixedThreadPool(8);
        Map<String, Future<Object>> outcomes = new LinkedHashMap<>();
        cases.forEach((name, login) -> outcomes.put("admin, " + name, threads.submit(() -> shown(() -> {
            try (Admin admin = admin(login)) {
                return get(admin.describeCluster().nodes()).size();
            }
        }))));
        for (String name : List.of("SASL_PLAINTEXT PLAIN, wrong password", "SASL_SSL SCRAM-SHA-512, unknown user",
            "SSL, no certificate", "SSL, an authority that the client does not trust",
            "mechanism that is not enabled")) {
            Map<String, String> login = cases.get(name);
            outcomes.put("producer, " + name, threads.submit(() -> shown(() -> {
                try (Producer<byte[], byte[]> producer = producer(login)) {
                    send(producer, TOPIC, 10);
                    return "sent";
                }
            })));
            for (String protocol : List.of("classic", "consumer")) {
                outcomes.put(protocol + " consumer, " + name, threads.submit(() -> shown(() -> {
                    try (Consumer<byte[], byte[]> consumer = consumer(with(login, "group.id", "secured-refused",
                        "group.protocol", protocol))) {
                        consumer.subscribe(List.of(TOPIC));
                        return polled(consumer);
                    }
                })));
            }
        }
        for (Map.Entry<String, Future<Object>> outcome : outcomes.entrySet()) {
            Object shown = outcome.getValue().get();
            step("refused: " + outcome.getKey(), () -> shown);
        }
        threads.shutdown();
    }

    // ---- who no longer may ---------------------------------------------------------------------------------------------

    private AclBinding right(ResourceType type, String name, AclOperation operation) {
        return SetUp.allowed(PREFIX + "revoked", new ResourcePattern(type, name, PatternType.LITERAL), operation);
    }

    private void grant(AclBinding right) {
        get(admin.createAcls(List.of(right)).all());
        settle(admin);
    }

    private void revoke(AclBinding right) {
        get(admin.deleteAcls(List.of(right.toFilter())).all());
        settle(admin);
    }

    private void revoked() {
        Map<String, String> login = login(PREFIX + "revoked");
        AclBinding write = right(ResourceType.TOPIC, TOPIC, AclOperation.WRITE);
        AclBinding read = right(ResourceType.TOPIC, TOPIC, AclOperation.READ);
        for (String idempotence : List.of("true", "false")) {
            String what = "revoked: a producer, idempotence " + idempotence + ", ";
            try (Producer<byte[], byte[]> producer = producer(with(login, "enable.idempotence", idempotence))) {
                Step send = () -> {
                    send(producer, TOPIC, 10);
                    return "sent";
                };
                grant(write);
                shownStep(what + "may", send);
                revoke(write);
                shownStep(what + "may no longer", send);
                grant(write);
                shownStep(what + "may again", send);
                revoke(write);
            }
        }
        for (String protocol : List.of("classic", "consumer")) {
            String what = "revoked: a member, " + protocol + ", ";
            String group = "revoked-" + protocol;
            AclBinding join = right(ResourceType.GROUP, group, AclOperation.READ);
            grant(read);
            grant(join);
            Map<String, String> settings = with(login, "group.id", group, "group.protocol", protocol,
                "auto.offset.reset", "earliest", "enable.auto.commit", "false");
            if (protocol.equals("classic")) {
                settings = with(settings, "heartbeat.interval.ms", "300");
            }
            try (Consumer<byte[], byte[]> consumer = consumer(settings)) {
                consumer.subscribe(List.of(TOPIC));
                shownStep(what + "may", () -> first(consumer).offset());
                revoke(read);
                shownStep(what + "may no longer read", () -> polled(consumer));
                grant(read);
                shownStep(what + "may read again", () -> {
                    consumer.seekToBeginning(consumer.assignment());
                    return first(consumer).offset();
                });
                revoke(join);
                // Offsets of its own: a member that a heartbeat has told first has no position left to commit.
                Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(new TopicPartition(TOPIC, 0), new OffsetAndMetadata(1));
                shownStep(what + "may no longer commit", () -> {
                    consumer.commitSync(offsets);
                    return "committed";
                });
                shownStep(what + "may no longer be one", () -> polled(consumer));
                revoke(read);
            }
        }
    }

    /** What comes of polling: the error that ends it. */
    static Object polled(Consumer<byte[], byte[]> consumer) {
        long deadline = System.nanoTime() + PATIENCE.toNanos() / 2;
        while (System.nanoTime() < deadline) {
            consumer.poll(Duration.ofMillis(100));
        }
        return "nothing";
    }

    /** Who is connected stays so; who comes anew does not get in. */
    private void removed() {
        String user = PREFIX + "removed";
        Map<String, String> login = login(user);
        try (Producer<byte[], byte[]> producer = producer(login)) {
            shownStep("removed: may", () -> {
                send(producer, TOPIC, 10);
                return "sent";
            });
            shownStep("removed: the credential", () -> get(admin.alterUserScramCredentials(List.of(
                new UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_512))).all()));
            settle(admin);
            shownStep("removed: is still connected", () -> {
                send(producer, TOPIC, 10);
                return "sent";
            });
        }
        shownStep("removed: comes anew", () -> {
            try (Admin admin = admin(login)) {
                return get(admin.describeCluster().nodes()).size();
            }
        });
        shownStep("removed: comes with the other mechanism", () -> {
            try (Admin admin = admin(login(Way.ALL.get(3), user, SetUp.password(user)))) {
                return get(admin.describeCluster().nodes()).size();
            }
        });
    }

    // ---- who has to wait -----------------------------------------------------------------------------------------------

    private static boolean isAboveNone(Map<MetricName, ? extends Metric> metrics, String name) {
        return metrics.entrySet().stream().anyMatch(entry -> entry.getKey().name().equals(name)
            && entry.getValue().metricValue() instanceof Double value && value > 0);
    }

    private void throttled() {
        String user = PREFIX + "slow";
        Map<String, String> login = login(user);
        shownStep("throttled: a producer", () -> {
            try (Producer<byte[], byte[]> producer = producer(login)) {
                long began = System.nanoTime();
                // On a machine that pauses, the first ones may stay below the quota.
                for (int sent = 0; sent < 5 || isAwaited(producer.metrics(), "produce-throttle-time-max", began); sent++) {
                    send(producer, TOPIC, 1_500);
                }
                boolean isHeldBack = System.nanoTime() - began > TimeUnit.MILLISECONDS.toNanos(500);
                return List.of(isHeldBack, isAboveNone(producer.metrics(), "produce-throttle-time-max"));
            }
        });
        shownStep("throttled: a consumer", () -> {
            try (Consumer<byte[], byte[]> consumer = consumer(with(login, "max.partition.fetch.bytes", "3000"))) {
                TopicPartition partition = new TopicPartition(TOPIC, 0);
                consumer.assign(List.of(partition));
                long end = get(admin.listOffsets(Map.of(partition, OffsetSpec.latest())).all()).get(partition).offset();
                long began = System.nanoTime();
                int read;
                do {
                    consumer.seek(partition, end - 4);
                    read = 0;
                    while (consumer.position(partition) < end) {
                        read += consumer.poll(Duration.ofMillis(100)).count();
                        if (System.nanoTime() - began > 2 * PATIENCE.toNanos()) {
                            giveUp("the records before " + end);
                        }
                    }
                } while (isAwaited(consumer.metrics(), "fetch-throttle-time-max", began));
                return List.of(read, isAboveNone(consumer.metrics(), "fetch-throttle-time-max"));
            }
        });
        try (Admin slow = admin(login)) {
            for (boolean isRetried : List.of(false, true)) {
                // The first topic has more partitions than may be created in several seconds; the client does not ask for
                // the third before that time has passed.
                shownStep("throttled: too many topics, retried " + isRetried, () -> {
                    List<Object> outcomes = new ArrayList<>();
                    for (int partitions : isRetried ? List.of(2, 2) : List.of(8, 2, 2)) {
                        String name = TOPIC + "-" + isRetried + outcomes.size();
                        outcomes.add(shown(() -> {
                            get(slow.createTopics(List.of(new NewTopic(name, partitions, (short) 1)),
                                new CreateTopicsOptions().retryOnQuotaViolation(isRetried)).all());
                            return "created";
                        }));
                    }
                    return outcomes;
                });
            }
        }
    }

    /** Whether a client that should be held back has not been yet, and there is still time. */
    private static boolean isAwaited(Map<MetricName, ? extends Metric> metrics, String throttle, long began) {
        return !isAboveNone(metrics, throttle) && System.nanoTime() - began < PATIENCE.toNanos();
    }

    // ---- sessions ------------------------------------------------------------------------------------------------------

    private void reauthenticated() {
        for (String mechanism : List.of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")) {
            Way way = new Way("reauth", "SASL_PLAINTEXT", mechanism);
            shownStep("sessions: " + way, () -> {
                try (Producer<byte[], byte[]> producer = producer(login(way, SetUp.ALICE,
                    SetUp.password(SetUp.ALICE)))) {
                    for (int i = 0; i < 8; i++) {
                        send(producer, TOPIC, 10);
                        Thread.sleep(400);
                    }
                    return List.of(isAboveNone(producer.metrics(), "successful-reauthentication-total"),
                        isAboveNone(producer.metrics(), "failed-reauthentication-total"),
                        isAboveNone(producer.metrics(), "failed-authentication-total"));
                }
            });
        }
    }
}
