"""librdkafka's conformance script, through confluent-kafka: `python confluent_script.py BOOTSTRAP`."""

import sys
import time

from confluent_kafka import (Consumer, ConsumerGroupTopicPartitions, IsolationLevel, KafkaException, Producer,
                             TopicCollection, TopicPartition)
from confluent_kafka.admin import (AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic,
                                   OffsetSpec, ResourceType)

from lines import PATIENCE, SINCE_KAFKA_4_4, T0, checksum, emit, failure, record, settle, text

BOOTSTRAP = sys.argv[1]
MAIN = "rdkafka-main"


def outcome(action):
    try:
        return action()
    except KafkaException as error:
        found = error.args[0]
        return f"! {found.name()}: {found.str()}"
    except Exception as error:  # an error of the client is an outcome too
        return failure(error)


def step(name):
    """Runs the function below it as a step of that name."""
    def run(action):
        emit(name, outcome(action))
    return run


admin = AdminClient({"bootstrap.servers": BOOTSTRAP, "client.id": "rdkafka-admin"})


def wait(futures):
    """The outcome of each of a call's futures, by the text of its key."""
    return {str(key): outcome(lambda: shown(future.result(PATIENCE))) for key, future in futures.items()}


def shown(value):
    return value if value is None or isinstance(value, (int, str, list, dict)) else str(value)


def producer(**settings):
    settings = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"bootstrap.servers": BOOTSTRAP, "client.id": "rdkafka-producer", "message.timeout.ms": 60000,
                     "linger.ms": 500, **settings})


def consumer(**settings):
    settings = {name.replace("_", "."): value for name, value in settings.items()}
    return Consumer({"bootstrap.servers": BOOTSTRAP, "client.id": "rdkafka-consumer", "group.id": "rdkafka-none",
                     "enable.auto.commit": False, "auto.offset.reset": "error", **settings})


def send(to, topic, partition, count):
    delivered = []

    def on_delivery(error, message):
        delivered.append(f"! {error.name()}" if error else [message.partition(), message.offset()])

    for i in range(count):
        key, value, headers, timestamp = record(i)
        to.produce(topic, partition=partition, key=key, value=value, headers=headers, timestamp=timestamp,
                   on_delivery=on_delivery)
    to.flush(PATIENCE)
    return delivered


def read(source, expected):
    found = []
    deadline = time.monotonic() + PATIENCE
    while len(found) < expected:
        if time.monotonic() > deadline:
            sys.exit(f"{len(found)} of {expected} records were read")
        message = source.poll(0.2)
        if message is None:
            continue
        if message.error():
            found.append(f"! {message.error().name()}")
            break
        kind, timestamp = message.timestamp()
        headers = [[key, text(value)] for key, value in message.headers() or []]
        found.append([message.offset(), kind, timestamp, text(message.key()), checksum(message.value()), headers,
                      message.leader_epoch()])
    return found


# ---- topics ---------------------------------------------------------------------------------------------------------

keep = {"retention.ms": "-1"}
for what, topic in {
    "main": NewTopic(MAIN, 3, 1, config=keep),
    "defaults": NewTopic("rdkafka-defaults"),
    "assigned": NewTopic("rdkafka-assigned", 2, replica_assignment=[[1], [1]]),
    "exists": NewTopic(MAIN, 3, 1),
    "bad name": NewTopic("rdkafka/slash", 1, 1),
    "too many replicas": NewTopic("rdkafka-three", 1, 3),
    "bad setting": NewTopic("rdkafka-bad", 1, 1, config={"retention.ms": "soon"}),
    "unknown setting": NewTopic("rdkafka-bad", 1, 1, config={"no.such.key": "1"}),
}.items():
    step(f"create {what}")(lambda: wait(admin.create_topics([topic], operation_timeout=PATIENCE)))
settle()


def topics():
    return sorted(name for name in admin.list_topics(timeout=PATIENCE).topics if name.startswith("rdkafka"))


def partitions_of(description):
    return [[p.id, p.leader.id, [n.id for n in p.replicas], [n.id for n in p.isr]] for p in description.partitions]


@step("describe cluster")
def _():
    found = admin.describe_cluster(include_authorized_operations=True).result(PATIENCE)
    return [found.cluster_id, found.controller.id, [n.id for n in found.nodes],
            sorted(operation.name for operation in found.authorized_operations)]


@step("describe topics")
def _():
    found = admin.describe_topics(TopicCollection([MAIN, "rdkafka-assigned", "rdkafka-nobody"]),
                                  include_authorized_operations=True)
    return {name: outcome(lambda: [partitions_of(future.result(PATIENCE)), future.result().is_internal, sorted(
        operation.name for operation in future.result().authorized_operations)]) for name, future in found.items()}


step("list topics")(topics)


@step("metadata of one topic")
def _():
    found = admin.list_topics(MAIN, timeout=PATIENCE).topics[MAIN]
    return {p.id: [p.leader, p.replicas, p.isrs] for p in found.partitions.values()}


# ---- records --------------------------------------------------------------------------------------------------------

for acks in ("1", "all", "0"):
    for compression in ("none", "gzip", "snappy", "lz4", "zstd"):
        step(f"produce acks={acks} {compression}")(lambda: send(
            producer(acks=acks, compression_type=compression), MAIN, 1 if acks == "0" else 0, 10))

step("produce idempotently")(lambda: send(producer(enable_idempotence=True, linger_ms=0), MAIN, 2, 20))


@step("produce over the broker's limit")
def _():
    errors = []
    big = producer(message_max_bytes=4_000_000)
    big.produce(MAIN, partition=2, value=b"x" * 2_000_000,
                on_delivery=lambda error, _: errors.append(error.name() if error else "delivered"))
    big.flush(PATIENCE)
    return errors


@step("produce creates the topic")
def _():
    return [send(producer(), "rdkafka-auto", 0, 1), topics()]


for partition, expected in ((0, 100), (1, 50), (2, 20)):
    @step(f"consume partition {partition}")
    def _():
        source = consumer()
        source.assign([TopicPartition(MAIN, partition, 0)])
        found = read(source, expected)
        source.close()
        return found


@step("consume in small pieces")
def _():
    source = consumer(fetch_message_max_bytes=100, fetch_max_bytes=1000, message_max_bytes=1000,
                      receive_message_max_bytes=1_000_000, isolation_level="read_committed", check_crcs=True)
    source.assign([TopicPartition(MAIN, 0, 0)])
    found = read(source, 100)
    source.close()
    return [len(found), found[-1]]


# ---- offsets --------------------------------------------------------------------------------------------------------

for what, spec in {
    "earliest": OffsetSpec.earliest(), "latest": OffsetSpec.latest(), "max timestamp": OffsetSpec.max_timestamp(),
    "before all": OffsetSpec.for_timestamp(0), "between": OffsetSpec.for_timestamp(T0 + 4500),
    "after all": OffsetSpec.for_timestamp(T0 + 1_000_000),
}.items():
    @step(f"offsets {what}")
    def _():
        asked = {TopicPartition(MAIN, p): spec for p in range(3)}
        found = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)
        return sorted([p.partition, future.result(PATIENCE).offset, future.result().timestamp]
                      for p, future in found.items())


@step("consumer's offsets")
def _():
    source = consumer()
    times = source.offsets_for_times([TopicPartition(MAIN, 0, T0 + 5000), TopicPartition(MAIN, 1, T0 + 10**6)], PATIENCE)
    found = [source.get_watermark_offsets(TopicPartition(MAIN, p), PATIENCE) for p in range(3)]
    source.close()
    return [found, [p.offset for p in times]]


@step("seek by time")
def _():
    source = consumer()
    found = source.offsets_for_times([TopicPartition(MAIN, 0, T0 + 7000)], PATIENCE)
    source.assign(found)
    records = read(source, 1)
    source.close()
    return records


for reset in ("error", "earliest", "latest"):
    @step(f"seek past the end, reset {reset}")
    def _():
        # The end is told too: where nothing more comes, that does.
        source = consumer(auto_offset_reset=reset, enable_partition_eof=True)
        source.assign([TopicPartition(MAIN, 0, 1000)])
        found = read(source, 1)
        source.close()
        return found


# ---- groups ---------------------------------------------------------------------------------------------------------

def settled(members, partitions):
    """Polls the members until all partitions are given out evenly; the numbers a member."""
    deadline = time.monotonic() + PATIENCE
    calm, last = 0, []
    while time.monotonic() < deadline:
        for member in members:
            member.poll(0.05)
        held = [[(p.topic, p.partition) for p in member.assignment()] for member in members]
        sizes = sorted(len(one) for one in held)
        is_spread = sum(sizes) == partitions and len({p for one in held for p in one}) == partitions
        calm = calm + 1 if is_spread and sizes == last and sizes[0] >= partitions // len(members) else 0
        last = sizes
        if calm >= 3:
            return sizes
    sys.exit(f"the group does not settle: {last}")


def group_shown(group, members=()):
    """Once these members have said that they have what they were given: librdkafka has no name for the states before."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = admin.describe_consumer_groups([group], include_authorized_operations=True)[group].result(PATIENCE)
        if not members or found.state.name != "UNKNOWN" or time.monotonic() > deadline:
            break
        for member in members:
            member.poll(0.05)
    members = sorted(f"{m.client_id} {m.group_instance_id} {m.host}"
                     for m in found.members)
    return [found.state.name, found.partition_assignor, found.type.name, found.is_simple_consumer_group,
            found.coordinator.id, members, sorted(operation.name for operation in found.authorized_operations)]


# Of the consumer protocol (KIP-848): the coordinator assigns.
KIP848 = "rdkafka-kip848"
ASSIGNORS = ("range", "roundrobin", "cooperative-sticky")
# Groups with a member that has a name of its own.
NAMED = {KIP848, *(f"rdkafka-{assignor}" for assignor in ASSIGNORS)}

for assignor in ASSIGNORS:
    group = f"rdkafka-{assignor}"
    members = []

    def join(**settings):
        member = consumer(group_id=group, partition_assignment_strategy=assignor, auto_offset_reset="earliest",
                          heartbeat_interval_ms=200, **settings)
        member.subscribe([MAIN])
        members.append(member)
        return settled(members, 3)

    step(f"group {assignor}: first member")(lambda: join())
    step(f"group {assignor}: second member")(lambda: join())
    step(f"group {assignor}: a member with a name of its own")(lambda: join(group_instance_id="rdkafka-static"))
    step(f"group {assignor}: described")(lambda: group_shown(group))

    @step(f"group {assignor}: first member leaves")
    def _():
        members.pop(0).close()
        return settled(members, 3)

    @step(f"group {assignor}: all leave")
    def _():
        while members:
            members.pop().close()
        return group_shown(group)


members = []


def join_new(**settings):
    member = consumer(group_id=KIP848, group_protocol="consumer", auto_offset_reset="earliest", **settings)
    member.subscribe([MAIN])
    members.append(member)
    return settled(members, 3)


step("consumer protocol: first member")(lambda: join_new())
step("consumer protocol: second member")(lambda: join_new(group_remote_assignor="uniform"))
step("consumer protocol: a member with a name of its own")(lambda: join_new(group_instance_id="rdkafka-static"))
step("consumer protocol: described")(lambda: group_shown(KIP848, members))


@step("consumer protocol: commit")
def _():
    done = [member.commit(offsets=[TopicPartition(MAIN, p.partition, 4) for p in member.assignment()],
                          asynchronous=False) for member in members]
    return sorted([p.partition, p.offset, str(p.error)] for one in done for p in one)


@step("consumer protocol: first member leaves")
def _():
    members.pop(0).close()
    return settled(members, 3)


@step("consumer protocol: a member of the classic protocol joins, and leaves")
def _():
    classic = consumer(group_id=KIP848, auto_offset_reset="earliest", heartbeat_interval_ms=200)
    classic.subscribe([MAIN])
    with_it = settled([*members, classic], 3)
    shown_with_it = group_shown(KIP848, [*members, classic])
    classic.close()
    return [with_it, shown_with_it, settled(members, 3)]


@step("consumer protocol: the named member leaves for good")
def _():
    while members:
        members.pop().close()
    found = group_shown(KIP848)
    return [found[0], found[2]]


@step("consumer protocol: by a regular expression")
def _():
    source = consumer(group_id=f"{KIP848}-regex", group_protocol="consumer", auto_offset_reset="earliest")
    source.subscribe(["^rdkafka-ma[h-j]n$"])
    sizes = settled([source], 3)
    source.close()
    return sizes


@step("consumer protocol: an assignor that is not served")
def _():
    source = consumer(group_id=f"{KIP848}-assignor", group_protocol="consumer", group_remote_assignor="mine")
    source.subscribe([MAIN])
    found = read(source, 1)
    source.close()
    return found


GROUP = "rdkafka-committing"


@step("commit")
def _():
    source = consumer(group_id=GROUP, auto_offset_reset="earliest")
    source.subscribe([MAIN])
    settled([source], 3)
    first = TopicPartition(MAIN, 0, 7, metadata="seven", leader_epoch=0)
    done = source.commit(offsets=[first, TopicPartition(MAIN, 1, 3)], asynchronous=False)
    found = source.committed([TopicPartition(MAIN, p) for p in range(3)], PATIENCE)
    source.close()
    return [[[p.partition, p.offset, str(p.error)] for p in done],
            [[p.partition, p.offset, p.metadata, p.leader_epoch] for p in found]]


@step("resume at the commit")
def _():
    source = consumer(group_id=GROUP)
    source.assign([TopicPartition(MAIN, 0)])
    found = read(source, 1)
    source.close()
    return found


def committed(group):
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(PATIENCE)
    return sorted([p.topic, p.partition, p.offset, p.metadata] for p in found.topic_partitions)


step("list committed offsets")(lambda: committed(GROUP))


@step("alter committed offsets")
def _():
    changed = ConsumerGroupTopicPartitions(GROUP, [TopicPartition(MAIN, 0, 2), TopicPartition(MAIN, 2, 5)])
    admin.alter_consumer_group_offsets([changed])[GROUP].result(PATIENCE)
    return committed(GROUP)


@step("list groups")
def _():
    found = admin.list_consumer_groups(request_timeout=PATIENCE).result(PATIENCE)
    # The place of a member with a name is kept for a while: at some time, those groups are empty.
    return [sorted([g.group_id, g.is_simple_consumer_group, "-" if g.group_id in NAMED else g.state.name, g.type.name]
                   for g in found.valid if g.group_id.startswith("rdkafka") and g.group_id != "rdkafka-none"),
            len(found.errors)]


step("describe unknown group")(lambda: group_shown("rdkafka-nobody"))
step("delete groups")(lambda: wait(admin.delete_consumer_groups([GROUP, "rdkafka-nobody"], request_timeout=PATIENCE)))

# ---- transactions ---------------------------------------------------------------------------------------------------

TRANSACTED = "rdkafka-transacted"
step("create for transactions")(lambda: wait(admin.create_topics([NewTopic(TRANSACTED, 2, 1)], operation_timeout=PATIENCE)))
settle()


def transactional(name, **settings):
    made = producer(transactional_id=name, linger_ms=0, **settings)
    made.init_transactions(PATIENCE)
    return made


def committed_end(partition, level=IsolationLevel.READ_COMMITTED):
    spec = {TopicPartition(TRANSACTED, partition): OffsetSpec.latest()}
    found = admin.list_offsets(spec, isolation_level=level, request_timeout=PATIENCE)
    return next(iter(found.values())).result(PATIENCE).offset


def read_committed(partition, end):
    """The values of a partition, once its committed end is there: markers follow the answer to the producer."""
    deadline = time.monotonic() + PATIENCE
    while committed_end(partition) < end:
        if time.monotonic() > deadline:
            sys.exit(f"partition {partition} is not committed up to {end}")
        time.sleep(0.02)
    source = consumer(isolation_level="read_committed", enable_partition_eof=True)
    source.assign([TopicPartition(TRANSACTED, partition, 0)])
    found = []
    while time.monotonic() < deadline:
        message = source.poll(0.2)
        if message is not None and message.error():
            break
        if message is not None:
            found.append([message.offset(), text(message.value())])
    source.close()
    return [found, committed_end(partition), committed_end(partition, IsolationLevel.READ_UNCOMMITTED)]


def put(to, partition, *values):
    for value in values:
        to.produce(TRANSACTED, partition=partition, value=value)
    to.flush(PATIENCE)


@step("transactions committed and aborted")
def _():
    made = transactional("rdkafka-ended")
    for number in range(6):
        made.begin_transaction()
        put(made, 0, f"a-{number}", f"b-{number}")
        put(made, 1, f"c-{number}")
        if number % 3 == 1:
            made.abort_transaction(PATIENCE)
        else:
            made.commit_transaction(PATIENCE)
    return [read_committed(0, 18), read_committed(1, 12)]


@step("an empty transaction, and an open one")
def _():
    made = transactional("rdkafka-open")
    made.begin_transaction()
    made.commit_transaction(PATIENCE)
    made.begin_transaction()
    put(made, 1, "open")
    while_open = read_committed(1, 12)
    made.commit_transaction(PATIENCE)
    return [while_open, read_committed(1, 14)]


@step("a transaction with offsets")
def _():
    source = consumer(group_id="rdkafka-transacted", auto_offset_reset="earliest", isolation_level="read_committed")
    source.subscribe([TRANSACTED])
    read(source, 1)
    made = transactional("rdkafka-offsets")
    found = []
    for number in range(2):
        made.begin_transaction()
        made.send_offsets_to_transaction([TopicPartition(TRANSACTED, 0, 5 + number)], source.consumer_group_metadata(),
                                         PATIENCE)
        if number == 0:
            made.abort_transaction(PATIENCE)
        else:
            made.commit_transaction(PATIENCE)
        found.append([position.offset for position in source.committed([TopicPartition(TRANSACTED, 0)], PATIENCE)])
    source.close()
    return found


@step("a fenced transaction")
def _():
    older = transactional("rdkafka-fenced")
    older.begin_transaction()
    put(older, 1, "fenced")
    newer = transactional("rdkafka-fenced")
    late = outcome(lambda: older.commit_transaction(PATIENCE))
    newer.begin_transaction()
    put(newer, 1, "of the newer")
    newer.commit_transaction(PATIENCE)
    return [late, read_committed(1, 18)]


# ---- settings, partitions, deletion ---------------------------------------------------------------------------------


# Settings of the broker that the scripts of other clients change meanwhile.
OTHERS = {"log.cleaner.backoff.ms", "log.cleaner.delete.retention.ms"}


def config_of(kind, name):
    found = admin.describe_configs([ConfigResource(kind, name)], request_timeout=PATIENCE)
    entries = next(iter(found.values())).result(PATIENCE)
    return {name: ["-" if entry.source == 4 else entry.value, entry.source, entry.is_read_only, entry.is_sensitive,
                   sorted(entry.synonyms)]
            for name, entry in sorted(entries.items())
            # The settings that only Ottla has start with its name.
            if name not in SINCE_KAFKA_4_4
            and (kind != ResourceType.BROKER or not (name in OTHERS or name.startswith("ottla.")))}


step("describe topic settings")(lambda: config_of(ResourceType.TOPIC, MAIN))
step("describe broker settings")(lambda: config_of(ResourceType.BROKER, "1"))
step("describe unknown topic's settings")(lambda: config_of(ResourceType.TOPIC, "rdkafka-nobody"))

for what, entry in {
    "set": ConfigEntry("segment.ms", "3600000", incremental_operation=AlterConfigOpType.SET),
    "append": ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
    "subtract": ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SUBTRACT),
    "delete": ConfigEntry("cleanup.policy", None, incremental_operation=AlterConfigOpType.DELETE),
    "no number": ConfigEntry("segment.ms", "later", incremental_operation=AlterConfigOpType.SET),
    "unknown key": ConfigEntry("no.such.key", "1", incremental_operation=AlterConfigOpType.SET),
}.items():
    @step(f"alter {what}")
    def _():
        resource = ConfigResource(ResourceType.TOPIC, MAIN, incremental_configs=[entry])
        changed = list(wait(admin.incremental_alter_configs([resource], request_timeout=PATIENCE)).values())
        settle()
        return [changed, {key: value for key, value in config_of(ResourceType.TOPIC, MAIN).items() if value[1] == 1}]


@step("alter all settings at once")
def _():
    resource = ConfigResource(ResourceType.TOPIC, MAIN, set_config={"retention.ms": "-1", "max.message.bytes": "2000"})
    changed = list(wait(admin.alter_configs([resource], request_timeout=PATIENCE)).values())
    settle()
    return [changed, {key: value for key, value in config_of(ResourceType.TOPIC, MAIN).items() if value[1] == 1}]


for total in (5, 2):
    step(f"create partitions to {total}")(lambda: [
        wait(admin.create_partitions([NewPartitions(MAIN, total)], operation_timeout=PATIENCE)), settle(),
        len(admin.list_topics(MAIN, timeout=PATIENCE).topics[MAIN].partitions)])

for before in (5, 3, 1000, -1):
    step(f"delete records before {before}")(lambda: [
        outcome(lambda: future.result(PATIENCE).low_watermark)
        for future in admin.delete_records([TopicPartition(MAIN, 1, before)]).values()])

step("delete topics")(lambda: wait(admin.delete_topics(["rdkafka-assigned", "rdkafka-auto", "rdkafka-nobody"],
                                                       operation_timeout=PATIENCE)))
settle()
step("topics left")(topics)
