"""librdkafka's script on listeners with TLS and logins, through confluent-kafka: `python … BOOTSTRAP PLACE`."""

import sys
import time

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (AclBinding, AclBindingFilter, AclOperation, AclPermissionType, AdminClient,
                                   ConfigResource, NewPartitions, NewTopic, ResourcePatternType, ResourceType)

from lines import PATIENCE, emit, failure, settle
from place import BEARER, MUTUAL, PLACE, USUAL, WAYS, certificate, masked, name, token, user_of

TOPIC = "secured-secured-confluent"
PREFIX = "secured-confluent-"
# For what does not come: of a partition that it may not read, the client says nothing.
SHORT_PATIENCE = 6


def outcome(action):
    try:
        return action()
    except KafkaException as error:
        found = error.args[0]
        return f"! {found.name()}: {masked(found.str())}"
    except Exception as error:  # an error of the client is an outcome too
        return masked(failure(error))


def step(what):
    """Runs the function below it as a step of that name."""
    def run(action):
        emit(what, outcome(action))
    return run


def login(way, user, password=None, authority="authority.pem"):
    listener, protocol, mechanism = way
    settings = {"bootstrap.servers": PLACE[listener], "security.protocol": protocol, "client.id": "rdkafka",
                "reconnect.backoff.ms": 1000, "reconnect.backoff.max.ms": 1000}
    if protocol.endswith("SSL"):
        settings["ssl.ca.location"] = certificate(authority)
    if mechanism == "OAUTHBEARER":
        # The time is the client's own; it sends no token that it takes for expired.
        settings |= {"sasl.mechanism": mechanism, "oauth_cb": lambda _: (token(user), time.time() + 3600)}
    elif mechanism:
        password = f"{user}-secret" if password is None else password
        settings |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
    elif user:
        settings |= {"ssl.certificate.location": certificate(f"{user}.crt"),
                     "ssl.key.location": certificate(f"{user}.key")}
    return settings


def send(settings, topic, length):
    """What is delivered; the client's own words where nothing is."""
    told = []
    delivered = []
    # The client gives up before the script does.
    to = Producer({**settings, "message.timeout.ms": 1000 * (PATIENCE - 2), "linger.ms": 0,
                   "error_cb": lambda error: told.append(f"{error.name()}: {masked(error.str())}")})
    to.produce(topic, value=b"v" * length,
               on_delivery=lambda error, _: delivered.append(f"! {error.name()}" if error else "sent"))
    to.flush(PATIENCE)
    return delivered


def read(settings, patience=PATIENCE, **more):
    """The first record's offset, or the first error."""
    source = Consumer({"group.id": "secured-none", "auto.offset.reset": "earliest", "enable.auto.commit": False,
                       **settings, **{key.replace("_", "."): value for key, value in more.items()}})
    try:
        if "group_id" in more:
            source.subscribe([TOPIC])
        else:
            source.assign([TopicPartition(TOPIC, 0, 0)])
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            message = source.poll(0.2)
            if message is None:
                continue
            # The client looks for the coordinator of the group that it has to name, though nobody joins it.
            if message.error() and message.error().name() == "GROUP_AUTHORIZATION_FAILED" and "group_id" not in more:
                continue
            if message.error():
                return f"! {message.error().name()}: {masked(message.error().str())}"
            return message.offset()
        return "nothing"
    finally:
        source.close()


for way in [*WAYS, BEARER]:
    @step(f"allowed {name(way)}")
    def _():
        settings = login(way, user_of(way))
        return [send(settings, TOPIC, 100_000), read(settings),
                read(settings, group_id=f"secured-confluent-{'-'.join(way)}"),
                sorted(topic for topic in AdminClient(settings).list_topics(timeout=PATIENCE).topics
                       if "confluent" in topic)]


# ---- who does not get in --------------------------------------------------------------------------------------------

def complaint(settings):
    """What the client says of its connection, but for that it has none."""
    told = []
    admin = AdminClient({**settings, "error_cb": lambda error: told.append(error)})
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        admin.poll(0.1)
        for error in told:
            if error.name() not in ("_ALL_BROKERS_DOWN", "_RESOLVE"):
                # The client reports it in one of two ways.
                if "certificate verify failed" in error.str():
                    return "! certificate verify failed"
                text = error.str().split("127.0.0.1:")[-1].split(": ", 1)[-1]
                return f"! {error.name()}: {masked(text)}"
    return [error.name() for error in told]


absent = ("sasl", "SASL_PLAINTEXT", "SCRAM-SHA-512")
tries = {}
for way in WAYS[:5]:
    tries[f"{name(way)}, wrong password"] = login(way, "alice", "wrong")
    tries[f"{name(way)}, unknown user"] = login(way, "nobody")
for user in ("expired", "audience", "stranger"):
    tries[f"{name(BEARER)}, {user}"] = login(BEARER, user)
tries |= {
    "mechanism that is not enabled": login(absent, "alice"),
    "SSL, an authority that the client does not trust": login(MUTUAL, "client", authority="stranger.pem"),
    "SSL, no certificate": login(MUTUAL, None),
    "SSL, an expired certificate": login(MUTUAL, "expired"),
    "SSL, a certificate of another authority": login(MUTUAL, "foreign"),
}
for what, settings in tries.items():
    step(f"refused: {what}")(lambda: complaint(settings))


# ---- who may not ----------------------------------------------------------------------------------------------------

def wait(futures):
    return {str(key): outcome(lambda: str(future.result(PATIENCE))) for key, future in futures.items()}


anything = AclBindingFilter(ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY,
                            AclPermissionType.ANY)
binding = AclBinding(ResourceType.TOPIC, "x", ResourcePatternType.LITERAL, "User:x", "*", AclOperation.READ,
                     AclPermissionType.ALLOW)
for user in ("carol", "reader", "member"):
    settings = login(USUAL, user)
    admin = AdminClient(settings)
    calls = {
        "produce": lambda: send(settings, TOPIC, 10),
        "produce, idempotent": lambda: send({**settings, "enable.idempotence": True}, TOPIC, 10),
        "read a partition": lambda: read(settings, PATIENCE if user == "reader" else SHORT_PATIENCE),
        "be a member": lambda: read(settings, group_id=f"secured-confluent-{user}"),
        "be a member, consumer": lambda: read(settings, group_id=f"secured-confluent-{user}-new",
                                              group_protocol="consumer"),
        "list topics": lambda: sorted(topic for topic in admin.list_topics(timeout=PATIENCE).topics
                                      if "confluent" in topic),
        "describe a topic": lambda: outcome(
            lambda: str(admin.describe_topics(TopicCollection([TOPIC]))[TOPIC].result(PATIENCE).name)),
        "create a topic": lambda: wait(admin.create_topics([NewTopic("secured-confluent-more", 1, 1)])),
        "delete topics": lambda: wait(admin.delete_topics([TOPIC, "secured-nothing"])),
        "create partitions": lambda: wait(admin.create_partitions([NewPartitions(TOPIC, 2)])),
        "describe settings": lambda: {str(key): outcome(lambda: len(future.result(PATIENCE))) for key, future in
                                      admin.describe_configs([ConfigResource("topic", TOPIC),
                                                              ConfigResource("broker", "1")]).items()},
        "describe ACLs": lambda: len(admin.describe_acls(anything).result(PATIENCE)),
        "create ACLs": lambda: list(wait(admin.create_acls([binding])).values()),
        "delete ACLs": lambda: list(wait(admin.delete_acls([anything])).values()),
        "describe groups": lambda: {key: outcome(lambda: future.result(PATIENCE).state.name) for key, future in
                                    admin.describe_consumer_groups(["secured-confluent-x"]).items()},
        "delete groups": lambda: wait(admin.delete_consumer_groups(["secured-confluent-x"])),
        "offsets of a group": lambda: {key: outcome(lambda: len(future.result(PATIENCE).topic_partitions))
                                       for key, future in admin.list_consumer_group_offsets(
                                           [ConsumerGroupTopicPartitions("secured-confluent-x")]).items()},
    }
    for what, call in calls.items():
        step(f"denied: {user}, {what}")(call)


@step("denied: carol, a transaction")
def _():
    to = Producer({**login(USUAL, "carol"), "transactional.id": "secured-confluent"})
    to.init_transactions(PATIENCE)
    return "begun"


# ---- who no longer may ----------------------------------------------------------------------------------------------

super_user = AdminClient({"bootstrap.servers": sys.argv[1]})
right = AclBinding(ResourceType.TOPIC, TOPIC, ResourcePatternType.LITERAL, f"User:{PREFIX}revoked", "*",
                   AclOperation.WRITE, AclPermissionType.ALLOW)
right_filter = AclBindingFilter(ResourceType.TOPIC, TOPIC, ResourcePatternType.LITERAL, f"User:{PREFIX}revoked", "*",
                                AclOperation.WRITE, AclPermissionType.ALLOW)


def grant():
    super_user.create_acls([right])[right].result(PATIENCE)
    settle()


def revoke():
    super_user.delete_acls([right_filter])[right_filter].result(PATIENCE)
    settle()


grant()
writer = Producer({**login(USUAL, f"{PREFIX}revoked"), "message.timeout.ms": 1000 * PATIENCE, "linger.ms": 0})


def write():
    delivered = []
    try:
        writer.produce(TOPIC, value=b"v",
                       on_delivery=lambda error, _: delivered.append(f"! {error.name()}" if error else "sent"))
    except KafkaException as error:
        # A topic that metadata has denied to the client is denied before anything is sent.
        return [f"! {error.args[0].name()}"]
    writer.flush(PATIENCE)
    return delivered


def await_metadata():
    """The client keeps a topic's error until the next metadata response, which it asks for once a second. Waits until a
    response without an error has come."""
    deadline = time.monotonic() + PATIENCE
    while error := writer.list_topics(TOPIC, timeout=PATIENCE).topics[TOPIC].error:
        if time.monotonic() > deadline:
            sys.exit(f"the metadata of {TOPIC} has an error after {PATIENCE} s: {error}")
        time.sleep(0.02)


step("revoked: may")(write)
revoke()
step("revoked: may no longer")(write)
grant()
await_metadata()
step("revoked: may again")(write)


# ---- who has to wait, and sessions ----------------------------------------------------------------------------------

@step("throttled: a producer")
def _():
    held = []
    to = Producer({**login(USUAL, f"{PREFIX}slow"), "linger.ms": 0,
                   "throttle_cb": lambda event: held.append(event.throttle_time)})
    began = time.monotonic()
    sent = 0
    # On a machine that pauses, the first ones may stay below the quota.
    while sent < 5 or not any(held) and time.monotonic() - began < PATIENCE:
        to.produce(TOPIC, value=b"v" * 1500)
        to.flush(PATIENCE)
        sent += 1
    return [time.monotonic() - began > 0.5, any(held)]


def renewed(mechanism):
    """What becomes of records that are sent through several sessions, and what the client says of its connection."""
    told = []
    delivered = []
    to = Producer({**login(("reauth", "SASL_PLAINTEXT", mechanism), "alice"), "linger.ms": 0,
                   "error_cb": lambda error: told.append(error.name())})
    for _ in range(8):
        to.produce(TOPIC, value=b"v", on_delivery=lambda error, _: delivered.append(
            f"! {error.name()}" if error else "sent"))
        to.flush(PATIENCE)
        time.sleep(0.4)
    return [delivered, told]


for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
    @step(f"sessions: SASL_PLAINTEXT {mechanism}")
    def _():
        for _ in range(3):
            found = renewed(mechanism)
            # In a pause of the machine, a session may end before the client renews it.
            if not found[1]:
                break
        return found
