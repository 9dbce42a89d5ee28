import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.producer.Producer;

/**
 * Logins with OAuth tokens of the run's own issuer, and with tokens that only look like them: by the Java client, which reads
 * its token from a file, and by hand.
 */
final class OAuthSteps {
    private static final String PACKAGE = "org.apache.kafka.common.security.oauthbearer.";
    private static final String ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls";
    /** As {@code secured.rs} has written them. */
    private static final List<String> TOKENS =
        List.of("valid", "expired", "early", "audience", "nobody", "issuer", "stranger", "unknown-key", "scopes");
    private final SecuredScript script;

    OAuthSteps(SecuredScript script) {
        this.script = script;
        System.setProperty(ALLOWED, String.join(",", TOKENS.stream().map(this::url).toList()));
    }

    void run() throws IOException {
        for (String name : TOKENS) {
            step("client, " + name, () -> {
                try (Admin admin = script.admin(login(name))) {
                    return Script.get(admin.describeCluster().nodes()).size();
                }
            });
            byHand(name, token(name));
        }
        step("client, records", () -> {
            try (Producer<byte[], byte[]> producer = script.producer(login("valid"));
                 Consumer<byte[], byte[]> consumer = script.consumer(script.with(login("valid"), "group.id",
                     "secured-oauth", "auto.offset.reset", "earliest"))) {
                script.send(producer, "secured-secured-logins", 1_000);
                consumer.subscribe(List.of("secured-secured-logins"));
                return Script.first(consumer).value().length;
            }
        });
        forged();
        malformed();
    }

    /** Tokens that nobody has signed, or somebody for something else. */
    private void forged() throws IOException {
        String[] valid = token("valid").split("\\.");
        String none = encoded("{\"alg\":\"none\"}");
        String root = encoded(decoded(valid[1]).replace("alice", "root"));
        byHand("no algorithm and no signature", none + "." + valid[1] + ".");
        byHand("no algorithm, and a signature", none + "." + valid[1] + "." + valid[2]);
        byHand("NONE", encoded("{\"alg\":\"NONE\"}") + "." + valid[1] + ".");
        byHand("HMAC", encoded(decoded(valid[0]).replace("ES256", "HS256")) + "." + valid[1] + "." + valid[2]);
        byHand("another user", valid[0] + "." + root + "." + valid[2]);
        byHand("no signature", valid[0] + "." + valid[1] + ".");
        byHand("a critical header", encoded(decoded(valid[0]).replace("{", "{\"crit\":[\"x\"],\"x\":1,")) + "."
            + valid[1] + "." + valid[2]);
        byHand("two parts", valid[0] + "." + valid[1]);
        byHand("four parts", String.join(".", valid) + ".x");
        byHand("no token", "x");
    }

    /** First messages around a good token, or none. */
    private void malformed() throws IOException {
        String token = token("valid");
        Map<String, String> messages = new LinkedHashMap<>();
        messages.put("for oneself", "n,a=alice,\1auth=Bearer " + token + "\1\1");
        messages.put("for another", "n,a=root,\1auth=Bearer " + token + "\1\1");
        messages.put("with an extension", "n,,\1auth=Bearer " + token + "\1more=value\1\1");
        messages.put("with an extension called auth", "n,,\1auth=Bearer " + token + "\1auth=x\1\1");
        messages.put("in small letters", "n,,\1auth=bearer " + token + "\1\1");
        messages.put("of another scheme", "n,,\1auth=Basic " + token + "\1\1");
        messages.put("channel binding", "y,,\1auth=Bearer " + token + "\1\1");
        messages.put("without an end", "n,,\1auth=Bearer " + token + "\1");
        messages.put("nothing", "");
        messages.put("an acknowledgement first", "\1");
        messages.forEach((name, message) -> talkStep(name, message, "\1"));
        talkStep("a good token after a bad one", first(token("stranger")), first(token));
    }

    private void byHand(String name, String token) {
        talkStep(name, first(token), "\1");
    }

    private void talkStep(String name, String first, String second) {
        step("by hand, " + name, () -> RawLogin.undelayed(() -> talk(first, second)));
    }

    private static String first(String token) {
        return "n,,\1auth=Bearer " + token + "\1\1";
    }

    /** What comes back to a first message, and to another where it did not end the exchange. */
    private Object talk(String first, String second) throws IOException {
        List<Object> heard = new ArrayList<>();
        try (RawLogin raw = new RawLogin((String) script.place.get("oauth"))) {
            heard.add(raw.handshake(1, "OAUTHBEARER").next());
            heard.add(raw.authenticate(1, bytes(first)).next());
            if (String.valueOf(heard).contains("status")) {
                heard.add(raw.authenticate(1, bytes(second)).next());
            }
            heard.add(raw.isClosedSoon() ? "closed" : "open");
        }
        return heard;
    }

    private static void step(String name, Script.Step step) {
        SecuredScript.shownStep("oauth: " + name, step);
    }

    private Map<String, String> login(String token) {
        Map<String, String> settings = new HashMap<>(Map.of("bootstrap.servers", (String) script.place.get("oauth"),
            "security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "OAUTHBEARER",
            "sasl.jaas.config", PACKAGE + "OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class", PACKAGE + "OAuthBearerLoginCallbackHandler"));
        settings.put("sasl.oauthbearer.token.endpoint.url", url(token));
        return settings;
    }

    private Path path(String token) {
        return Path.of((String) script.place.get("certificates"), token + ".jwt");
    }

    private String url(String token) {
        return "file://" + path(token);
    }

    private String token(String name) throws IOException {
        return Files.readString(path(name)).trim();
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String encoded(String text) {
        return Base64.getUrlEncoder().withoutPadding().encodeToString(bytes(text));
    }

    private static String decoded(String part) {
        return new String(Base64.getUrlDecoder().decode(part), StandardCharsets.UTF_8);
    }
}
