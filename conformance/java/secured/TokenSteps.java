import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.token.delegation.*;

/** Delegation tokens: who makes, sees, renews and ends them, and what they are good for. */
final class TokenSteps {
    private final SecuredScript script;

    TokenSteps(SecuredScript script) {
        this.script = script;
    }

    void run() {
        try (Admin alice = script.admin(script.login(SetUp.ALICE)); Admin carol = script.admin(script.login("carol"))) {
            CreateDelegationTokenOptions options = new CreateDelegationTokenOptions().maxLifetimeMs(3_600_000)
                .renewers(List.of(new KafkaPrincipal("User", "reader")));
            DelegationToken token = Script.get(alice.createDelegationToken(options).delegationToken());
            Script.settle(script.admin);
            step("made", () -> shown(token));
            step("seen by the owner", () -> described(alice));
            step("seen by another", () -> described(carol));
            step("for somebody else, without a right", () -> Script.get(carol.createDelegationToken(
                new CreateDelegationTokenOptions().owner(new KafkaPrincipal("User", "alice"))).delegationToken()));
            step("with a renewer of another type", () -> Script.get(alice.createDelegationToken(
                new CreateDelegationTokenOptions().renewers(List.of(new KafkaPrincipal("Group", "x"))))
                .delegationToken()));
            step("without logging in", () -> Script.get(script.admin.createDelegationToken().delegationToken()));
            step("seen without logging in", () -> described(script.admin));
            for (String mechanism : List.of("SCRAM-SHA-256", "SCRAM-SHA-512")) {
                byToken(token, mechanism);
            }
            step("with the wrong HMAC", () -> {
                try (Admin admin = script.admin(login(token.tokenInfo().tokenId(), "d3Jvbmc=", "SCRAM-SHA-512"))) {
                    return Script.get(admin.describeCluster().nodes()).size();
                }
            });
            step("with an unknown id", () -> {
                try (Admin admin = script.admin(login("nothing", token.hmacAsBase64String(), "SCRAM-SHA-512"))) {
                    return Script.get(admin.describeCluster().nodes()).size();
                }
            });
            step("without saying that it is one", () -> {
                try (Admin admin = script.admin(script.login(SecuredScript.Way.USUAL, token.tokenInfo().tokenId(),
                    token.hmacAsBase64String()))) {
                    return Script.get(admin.describeCluster().nodes()).size();
                }
            });
            step("renewed by another", () -> Script.get(carol.renewDelegationToken(token.hmac()).expiryTimestamp()));
            step("renewed by the owner", () -> Script.get(alice.renewDelegationToken(token.hmac(),
                new RenewDelegationTokenOptions().renewTimePeriodMs(60_000)).expiryTimestamp()) > 0);
            step("renewed beyond its life", () -> Script.get(alice.renewDelegationToken(token.hmac(),
                new RenewDelegationTokenOptions().renewTimePeriodMs(7_200_000)).expiryTimestamp())
                == token.tokenInfo().maxTimestamp());
            step("renewed by its renewer", () -> {
                try (Admin reader = script.admin(script.login("reader"))) {
                    return Script.get(reader.renewDelegationToken(token.hmac()).expiryTimestamp()) > 0;
                }
            });
            step("renewed, of no token", () ->
                Script.get(alice.renewDelegationToken(new byte[] {1}).expiryTimestamp()));
            step("ended by another", () -> Script.get(carol.expireDelegationToken(token.hmac()).expiryTimestamp()));
            step("ended, of no token", () ->
                Script.get(alice.expireDelegationToken(new byte[] {1}).expiryTimestamp()));
            step("ended", () -> Script.get(alice.expireDelegationToken(token.hmac()).expiryTimestamp()) > 0);
            Script.settle(script.admin);
            step("seen after its end", () -> described(alice));
            step("used after its end", () -> {
                try (Admin admin = script.admin(login(token.tokenInfo().tokenId(), token.hmacAsBase64String(),
                    "SCRAM-SHA-512"))) {
                    return Script.get(admin.describeCluster().nodes()).size();
                }
            });
        }
    }

    /** What its bearer may do, who is its owner, but for tokens. */
    private void byToken(DelegationToken token, String mechanism) {
        Map<String, String> login = login(token.tokenInfo().tokenId(), token.hmacAsBase64String(), mechanism);
        try (Admin admin = script.admin(login)) {
            step("topics by token, " + mechanism, () -> Script.get(admin.listTopics().names()).stream()
                .filter(SecuredScript.TOPIC::equals).toList());
            step("another by token, " + mechanism, () -> Script.get(admin.createDelegationToken().delegationToken()));
            step("seen by token, " + mechanism, () -> described(admin));
            step("renewed by token, " + mechanism, () ->
                Script.get(admin.renewDelegationToken(token.hmac()).expiryTimestamp()));
            step("ended by token, " + mechanism, () ->
                Script.get(admin.expireDelegationToken(token.hmac()).expiryTimestamp()));
        }
    }

    private static void step(String name, Script.Step step) {
        SecuredScript.shownStep("tokens: " + name, step);
    }

    private Map<String, String> login(String id, String hmac, String mechanism) {
        SecuredScript.Way way = new SecuredScript.Way("saslssl", "SASL_SSL", mechanism);
        Map<String, String> settings = script.login(way, id, hmac);
        String entry = settings.get("sasl.jaas.config").replace(";", " tokenauth=\"true\";");
        return script.with(settings, "sasl.jaas.config", entry);
    }

    private static Object described(Admin admin) {
        return Script.get(admin.describeDelegationToken().delegationTokens()).stream().map(TokenSteps::shown).toList();
    }

    private static Object shown(DelegationToken token) {
        TokenInformation about = token.tokenInfo();
        return List.of(token.hmac().length, String.valueOf(about.owner()), String.valueOf(about.tokenRequester()),
            Script.sorted(about.renewersAsString()), about.maxTimestamp() - about.issueTimestamp(),
            about.expiryTimestamp() - about.issueTimestamp());
    }
}
