import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.message.MetadataRequestData.MetadataRequestTopic;
import org.apache.kafka.common.protocol.*;

/**
 * Logins that no client speaks: what a broker answers, whether it keeps the answer back, and when it closes. Run as
 * {@code LoginSteps BOOTSTRAP PLACE}.
 */
public final class LoginSteps {
    private static final String PLAIN = "PLAIN";
    private static final String SCRAM = "SCRAM-SHA-256";
    private static final byte[] ALICE = bytes("\0alice\0alice-secret");
    private final SecuredScript script;
    /** Talks mostly wait, each on a connection of its own. */
    private final ExecutorService threads = Executors.newFixedThreadPool(6);
    private final Map<String, Future<Object>> talks = new LinkedHashMap<>();

    LoginSteps(SecuredScript script) {
        this.script = script;
    }

    public static void main(String[] arguments) throws Exception {
        LoginSteps steps = new LoginSteps(SecuredScript.of(arguments));
        steps.beforeLogin();
        steps.outOfOrder();
        steps.misplaced();
        steps.plainTokens();
        steps.scramTokens();
        steps.afterLogin();
        steps.sessions();
        new OAuthSteps(steps.script).run();
        for (Map.Entry<String, Future<Object>> talk : steps.talks.entrySet()) {
            Object heard = talk.getValue().get();
            Script.step("login: " + talk.getKey(), () -> heard);
        }
        System.exit(0);
    }

    private void later(String name, Script.Step step) {
        talks.put(name, threads.submit(() -> Script.outcome(() -> RawLogin.undelayed(step))));
    }

    /** What is said on a connection. */
    private interface Talk {
        RawLogin on(RawLogin raw) throws Exception;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** What comes back to each part of a talk, the last part being what happens then. */
    private void talk(String listener, String name, Talk... parts) {
        later(name, () -> {
            List<Object> heard = new ArrayList<>();
            try (RawLogin raw = new RawLogin((String) script.place.get(listener))) {
                for (Talk part : parts) {
                    heard.add(part.on(raw).next());
                }
                // A connection that is still open answers nothing that was not asked.
                heard.add(raw.isClosedSoon() ? "closed" : "open");
            }
            return heard;
        });
    }

    private void sasl(String name, Talk... parts) {
        talk("sasl", name, parts);
    }

    private void beforeLogin() {
        sasl("metadata first", RawLogin::metadata);
        sasl("authenticate first", raw -> raw.authenticate(1, ALICE));
        sasl("no request", raw -> raw.frame(bytes("no request at all, but of some length")));
        sasl("a GSSAPI token", raw -> raw.frame(new byte[] {0x60, 0x10, 6, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
        sasl("an empty frame", raw -> raw.frame(new byte[0]));
        sasl("a negative length", raw -> raw.bytes(new byte[] {-1, -1, -1, -1}));
        sasl("a frame that is too long", raw -> raw.bytes(new byte[] {0, 8, 0, 1, 0, 0}));
        sasl("HTTP", raw -> raw.bytes(bytes("GET / HTTP/1.1\r\nHost: here\r\n\r\n")));
        sasl("versions, metadata", raw -> raw.versions(3, "a"), RawLogin::metadata);
        sasl("versions, authenticate", raw -> raw.versions(3, "a"), raw -> raw.authenticate(1, ALICE));
        sasl("versions twice", raw -> raw.versions(3, "a"), raw -> raw.versions(3, "a"));
        sasl("versions of a version that is not there, then of one that is", raw -> raw.versions(99, "a"),
            raw -> raw.versions(3, "a"), raw -> raw.handshake(1, PLAIN));
        sasl("versions with a bad name, then with a good one", raw -> raw.versions(3, "-"),
            raw -> raw.versions(3, "a"));
        sasl("versions, old", raw -> raw.versions(0, ""), raw -> raw.handshake(1, PLAIN));
        sasl("an unknown API", raw -> raw.frame(new byte[] {3, -24, 0, 0, 0, 0, 0, 7, 0, 0}));
    }

    private void outOfOrder() {
        for (int version = 0; version <= 1; version++) {
            int handshake = version;
            sasl("an unknown mechanism, v" + version, raw -> raw.handshake(handshake, "ROT13"));
            sasl("a mechanism that is not enabled, v" + version, raw -> raw.handshake(handshake, "SCRAM-SHA-512"));
            sasl("no mechanism, v" + version, raw -> raw.handshake(handshake, ""));
            sasl("a mechanism in small letters, v" + version, raw -> raw.handshake(handshake, "plain"));
        }
        sasl("handshake of a version that is not there", raw -> raw.handshake(9, PLAIN));
        sasl("handshake with less than it says", raw -> raw.request(ApiKeys.SASL_HANDSHAKE, 1, new byte[] {0, 9, 1}));
        sasl("handshake twice", raw -> raw.handshake(1, PLAIN), raw -> raw.handshake(1, PLAIN));
        sasl("handshake, versions", raw -> raw.handshake(1, PLAIN), raw -> raw.versions(3, "a"));
        sasl("handshake, metadata", raw -> raw.handshake(1, PLAIN), RawLogin::metadata);
        sasl("handshake, find coordinator", raw -> raw.handshake(1, PLAIN),
            raw -> raw.request(ApiKeys.FIND_COORDINATOR, 0, new byte[] {0, 1, 'g'}));
        sasl("handshake, list groups", raw -> raw.handshake(1, PLAIN),
            raw -> raw.request(ApiKeys.LIST_GROUPS, 0, new byte[0]));
        sasl("handshake, no request", raw -> raw.handshake(1, PLAIN), raw -> raw.frame(bytes("no request at all")));
        sasl("handshake, a frame that is too long", raw -> raw.handshake(1, PLAIN),
            raw -> raw.bytes(new byte[] {0, 8, 0, 1, 0, 0}));
        sasl("authenticate of a version that is not there", raw -> raw.handshake(1, PLAIN),
            raw -> raw.authenticate(9, ALICE));
    }

    /** Requests in the middle of a login, in the oldest and the newest version. */
    private void misplaced() {
        for (String name : List.of("JOIN_GROUP", "HEARTBEAT", "LEAVE_GROUP", "SYNC_GROUP", "LIST_GROUPS",
            "INIT_PRODUCER_ID", "ADD_OFFSETS_TO_TXN", "END_TXN", "DESCRIBE_LOG_DIRS",
            "CREATE_DELEGATION_TOKEN", "RENEW_DELEGATION_TOKEN", "EXPIRE_DELEGATION_TOKEN",
            "DESCRIBE_DELEGATION_TOKEN", "OFFSET_DELETE", "DESCRIBE_CLIENT_QUOTAS", "VOTE", "BEGIN_QUORUM_EPOCH",
            "END_QUORUM_EPOCH", "DESCRIBE_QUORUM", "ALTER_PARTITION", "UPDATE_FEATURES", "ENVELOPE", "FETCH_SNAPSHOT",
            "DESCRIBE_CLUSTER", "BROKER_REGISTRATION", "BROKER_HEARTBEAT", "UNREGISTER_BROKER", "LIST_TRANSACTIONS",
            "ALLOCATE_PRODUCER_IDS", "CONSUMER_GROUP_HEARTBEAT", "CONTROLLER_REGISTRATION",
            "GET_TELEMETRY_SUBSCRIPTIONS", "PUSH_TELEMETRY", "ASSIGN_REPLICAS_TO_DIRS", "LIST_CONFIG_RESOURCES",
            "SHARE_GROUP_HEARTBEAT", "SHARE_FETCH", "SHARE_ACKNOWLEDGE", "ADD_RAFT_VOTER", "REMOVE_RAFT_VOTER",
            "UPDATE_RAFT_VOTER", "STREAMS_GROUP_HEARTBEAT", "DELETE_SHARE_GROUP_OFFSETS",
            "ALTER_SHARE_GROUP_OFFSETS", "METADATA", "FIND_COORDINATOR")) {
            misplaced(ApiKeys.valueOf(name));
        }
        for (ApiKeys api : ApiKeys.values()) {
            // Since Apache Kafka 4.4.
            if (List.of("STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE", "UNREGISTER_CONTROLLER").contains(api.name())) {
                misplaced(api);
            }
        }
        misplaced(ApiKeys.OFFSET_FETCH, 2, new OffsetFetchRequestData());
        misplaced(ApiKeys.OFFSET_FETCH, 7, new OffsetFetchRequestData());
        misplaced(ApiKeys.ADD_PARTITIONS_TO_TXN, 5, new AddPartitionsToTxnRequestData());
        byte any = 1;
        misplaced(ApiKeys.DESCRIBE_ACLS, 3, "any", new DescribeAclsRequestData().setResourceTypeFilter(any)
            .setOperation(any).setPermissionType(any));
        for (int version : List.of(4, 12)) {
            misplaced(ApiKeys.METADATA, version, "two topics", new MetadataRequestData().setTopics(
                List.of(new MetadataRequestTopic().setName("a"), new MetadataRequestTopic().setName("b"))));
        }
        misplaced(ApiKeys.FIND_COORDINATOR, 5, "two keys",
            new FindCoordinatorRequestData().setCoordinatorKeys(List.of("a", "b")));
        misplaced(ApiKeys.PRODUCE, 9, "no acknowledgement", new ProduceRequestData().setAcks((short) 0));
        misplaced(ApiKeys.PRODUCE, 9, "an acknowledgement", new ProduceRequestData().setAcks((short) 1));
        sasl("handshake, a version that is not there", raw -> raw.handshake(1, PLAIN),
            raw -> raw.request(ApiKeys.LIST_GROUPS, 99, new byte[0]));
        sasl("handshake, versions of a version that is not there", raw -> raw.handshake(1, PLAIN),
            raw -> raw.versions(99, "a"));
        sasl("handshake without headers, metadata", raw -> raw.handshake(0, PLAIN), RawLogin::metadata);
    }

    private void misplaced(ApiKeys api) {
        for (short version : new TreeSet<>(List.of(api.oldestVersion(), api.latestVersion()))) {
            misplaced(api, version, api.messageType.newRequest());
        }
    }

    private void misplaced(ApiKeys api, int version, ApiMessage request) {
        misplaced(api, version, "empty", request);
    }

    private void misplaced(ApiKeys api, int version, String what, ApiMessage request) {
        sasl("misplaced, " + api + " v" + version + ", " + what, raw -> raw.handshake(1, PLAIN),
            raw -> raw.other(api, version, request));
    }

    private void plainTokens() {
        Map<String, byte[]> tokens = new LinkedHashMap<>();
        tokens.put("good", ALICE);
        tokens.put("good, for oneself", bytes("alice\0alice\0alice-secret"));
        tokens.put("for another", bytes("carol\0alice\0alice-secret"));
        tokens.put("for another, wrong password", bytes("carol\0alice\0wrong"));
        tokens.put("wrong password", bytes("\0alice\0wrong"));
        tokens.put("nobody", bytes("\0nobody\0x"));
        tokens.put("no user", bytes("\0\0x"));
        tokens.put("no password", bytes("\0alice\0"));
        tokens.put("nothing", new byte[0]);
        tokens.put("one part", bytes("alice"));
        tokens.put("two parts", bytes("\0alice"));
        tokens.put("four parts", bytes("\0alice\0alice-secret\0"));
        tokens.put("five parts", bytes("\0alice\0alice-secret\0more\0"));
        tokens.put("no UTF-8", new byte[] {0, (byte) 0xff, 'a', 0, 'b'});
        tokens.forEach((name, token) -> {
            sasl("PLAIN, " + name, raw -> raw.handshake(1, PLAIN), raw -> raw.authenticate(1, token));
            later("PLAIN without headers, " + name, () -> {
                try (RawLogin raw = new RawLogin((String) script.place.get("sasl"))) {
                    return List.of(raw.handshake(0, PLAIN).next(), raw.frame(token).nextToken(),
                        raw.isClosedSoon() ? "closed" : "open");
                }
            });
        });
        for (int version : List.of(0, 2)) {
            sasl("PLAIN, v" + version, raw -> raw.handshake(1, PLAIN), raw -> raw.authenticate(version, ALICE));
            sasl("PLAIN, v" + version + ", wrong", raw -> raw.handshake(1, PLAIN),
                raw -> raw.authenticate(version, bytes("\0alice\0wrong")));
        }
    }

    private void scramTokens() {
        String proof = Base64.getEncoder().encodeToString(new byte[32]);
        for (String first : List.of("n,,n=alice,r=abc", "n,a=alice,n=alice,r=abc", "n,a=carol,n=alice,r=abc",
            "y,,n=alice,r=abc", "p=tls-unique,,n=alice,r=abc", "n,,m=ext,n=alice,r=abc", "n,,n=,r=abc", "n,,n=alice,r=",
            "n,,r=abc,n=alice", "n,,n=alice", "", "n", "n,,", "n,,n=al=XXice,r=abc", "n,,n=alice,r=a b",
            "n,,n=alice,r=abc,more=b", "n,,n=alice,r=abc,tokenauth=false", "n,,n=alice,r=abc,tokenauth",
            "n,,n=alice,r=a\u00e9c", " n,,n=alice,r=abc")) {
            sasl("SCRAM, first " + first, raw -> raw.handshake(1, SCRAM), raw -> raw.authenticate(1, bytes(first)));
        }
        for (String last : List.of("c=biws,r=wrong,p=PROOF", "c=biws,r=NONCE,p=PROOF", "c=biws,r=NONCE", "c=biws", "",
            "r=NONCE,c=biws,p=PROOF", "c=biws,r=NONCE,p=!", "c=biws,r=NONCE,x=1,p=PROOF", "c=biws,r=NONCE,p=AAAA")) {
            sasl("SCRAM, last " + last, raw -> raw.handshake(1, SCRAM), raw -> {
                String challenge = new String(raw.authenticate(1, bytes("n,,n=alice,r=abc")).challenge(),
                    StandardCharsets.UTF_8);
                String nonce = challenge.substring(2, challenge.indexOf(','));
                return raw.authenticate(1, bytes(last.replace("NONCE", nonce).replace("PROOF", proof)));
            });
        }
        later("SCRAM without headers, bad", () -> {
            try (RawLogin raw = new RawLogin((String) script.place.get("sasl"))) {
                return List.of(raw.handshake(0, SCRAM).next(), raw.frame(bytes("n,,n=alice")).nextToken());
            }
        });
        later("SCRAM without headers, the first message", () -> {
            try (RawLogin raw = new RawLogin((String) script.place.get("sasl"))) {
                return List.of(raw.handshake(0, SCRAM).next(), raw.frame(bytes("n,,n=alice,r=abc")).nextToken(),
                    raw.frame(bytes("c=biws")).nextToken());
            }
        });
    }

    private void afterLogin() {
        Talk handshake = raw -> raw.handshake(1, PLAIN);
        Talk login = raw -> raw.authenticate(1, ALICE);
        sasl("in, versions", handshake, login, raw -> raw.versions(3, "a"));
        sasl("in, metadata", handshake, login, RawLogin::metadata);
        sasl("in, handshake", handshake, login, handshake);
        sasl("in, authenticate", handshake, login, login);
        sasl("in, a frame without an API", handshake, login, raw -> raw.frame(bytes("no request at all")));
        sasl("in without headers, metadata", raw -> raw.handshake(0, PLAIN), raw -> raw.frame(ALICE),
            RawLogin::metadata);
        talk("ssl", "SASL at a listener of SSL", handshake);
        talk("ssl", "HTTP at a listener of SSL", raw -> raw.bytes(bytes("GET / HTTP/1.1\r\n\r\n")));
    }

    /** Sessions last for 1500 ms; another begins at the earliest after 1000 ms. */
    private void sessions() {
        Talk handshake = raw -> raw.handshake(1, PLAIN);
        Talk login = raw -> raw.authenticate(1, ALICE);
        Talk late = raw -> {
            Thread.sleep(1_200);
            return raw.handshake(1, PLAIN);
        };
        Talk expired = raw -> {
            Thread.sleep(1_800);
            return raw.metadata();
        };
        talk("reauth", "session, metadata after its end", handshake, login, RawLogin::metadata, expired);
        talk("reauth", "session without its length, metadata after its end", handshake,
            raw -> raw.authenticate(0, ALICE), expired);
        talk("reauth", "session without headers, metadata after its end", raw -> raw.handshake(0, PLAIN),
            raw -> raw.frame(ALICE), expired);
        talk("reauth", "session, a second at once", handshake, login, handshake);
        talk("reauth", "session, a third at once", handshake, login, handshake, login, handshake);
        talk("reauth", "session, a second", handshake, login, late, login, RawLogin::metadata);
        talk("reauth", "session, a second after the end of the first", handshake, login, raw -> {
            Thread.sleep(1_800);
            return raw.handshake(1, PLAIN);
        }, login, RawLogin::metadata);
        talk("reauth", "session, a second as another", handshake, login, late,
            raw -> raw.authenticate(1, bytes("\0carol\0carol-secret")));
        talk("reauth", "session, a second with a wrong password", handshake, login, late,
            raw -> raw.authenticate(1, bytes("\0alice\0wrong")));
        talk("reauth", "session, a second with another mechanism", handshake, login, raw -> {
            Thread.sleep(1_200);
            return raw.handshake(1, SCRAM);
        }, raw -> raw.authenticate(1, bytes("n,,n=alice,r=abc")));
        talk("reauth", "session, a second with an unknown mechanism", handshake, login, raw -> {
            Thread.sleep(1_200);
            return raw.handshake(1, "ROT13");
        });
        talk("reauth", "session, metadata within the second login", handshake, login, late, RawLogin::metadata);
        talk("reauth", "session, authenticate alone", handshake, login, login);
    }
}
