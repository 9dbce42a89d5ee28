"""aiokafka's conformance script: `python aiokafka_script.py BOOTSTRAP`."""

import asyncio
import logging
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.structs import OffsetAndMetadata

from lines import PATIENCE, SINCE_KAFKA_4_4, T0, checksum, emit, failure, record, settle, text

logging.disable(logging.CRITICAL)

BOOTSTRAP = sys.argv[1]
MAIN = "aio-main"


async def outcome(action):
    try:
        return await action
    except Exception as error:  # an error of the client is an outcome too
        return failure(error)


async def step(name, action):
    emit(name, await outcome(action))


def producer(**settings):
    return AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, client_id="aio-producer", **settings)


def consumer(*topics, **settings):
    return AIOKafkaConsumer(*topics, bootstrap_servers=BOOTSTRAP, client_id="aio-consumer",
                            **{"enable_auto_commit": False, "auto_offset_reset": "none", **settings})


def record_shown(found):
    return [found.partition, found.offset, found.timestamp, found.timestamp_type, text(found.key),
            checksum(found.value), [[key, text(value)] for key, value in found.headers]]


async def send(topic, partition, count, **settings):
    shown = []
    async with producer(**settings) as to:
        sent = []
        for i in range(count):
            key, value, headers, timestamp = record(i)
            sent.append(await to.send(topic, value, key=key, partition=partition, headers=headers,
                                      timestamp_ms=timestamp))
        for one in sent:
            done = await asyncio.wait_for(one, PATIENCE)
            # With acks=0 nobody says what the offset is.
            shown.append([done.partition, done.offset, done.timestamp] if done is not None else None)
    return shown


async def read(source, expected):
    found = []
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while len(found) < expected:
        if asyncio.get_running_loop().time() > deadline:
            sys.exit(f"{len(found)} of {expected} records were read")
        for records in (await source.getmany(timeout_ms=200)).values():
            found.extend(record_shown(one) for one in records)
    return found


async def topics_and_records(admin):
    for what, topic in {
        "main": NewTopic(MAIN, 3, 1, topic_configs={"retention.ms": "-1"}),
        "another": NewTopic("aio-another", 1, 1),
        "assigned": NewTopic("aio-assigned", -1, -1, replica_assignments={0: [1], 1: [1]}),
        "exists": NewTopic(MAIN, 3, 1),
        "bad name": NewTopic("aio/slash", 1, 1),
        "too many replicas": NewTopic("aio-three", 1, 3),
        "bad setting": NewTopic("aio-bad", 1, 1, topic_configs={"retention.ms": "soon"}),
    }.items():
        async def create():
            return (await admin.create_topics([topic])).topic_errors
        await step(f"create {what}", create())

    settle()

    async def describe():
        found = await admin.describe_topics([MAIN, "aio-assigned", "aio-nobody"])
        for topic in found:
            topic.pop("topic_id", None)
        return sorted(found, key=lambda topic: topic["topic"])
    await step("describe topics", describe())
    # Asking for a topic that is not there has it created.
    settle()

    async def names():
        return sorted(name for name in await admin.list_topics() if name.startswith("aio"))
    await step("list topics", names())

    async def cluster():
        found = await admin.describe_cluster()
        return {key: value for key, value in found.items() if key != "throttle_time_ms"}
    await step("describe cluster", cluster())

    for acks in (1, "all", 0):
        for compression in (None, "gzip", "snappy", "lz4", "zstd"):
            await step(f"produce acks={acks} {compression}", send(
                MAIN, 1 if acks == 0 else 0, 10, acks=acks, compression_type=compression, linger_ms=300))
    await step("produce idempotently", send(MAIN, 2, 20, enable_idempotence=True))
    await step("produce creates the topic", send("aio-auto", 0, 1))

    async def too_large():
        async with producer(max_request_size=4_000_000) as to:
            return (await to.send_and_wait(MAIN, b"x" * 2_000_000, partition=2)).offset
    await step("produce over the broker's limit", too_large())

    for partition, expected in ((0, 100), (1, 50), (2, 20)):
        async def alone():
            async with consumer() as source:
                source.assign([TopicPartition(MAIN, partition)])
                await source.seek_to_beginning()
                return await read(source, expected)
        await step(f"consume partition {partition}", alone())

    async def pieces():
        async with consumer(max_partition_fetch_bytes=100, fetch_max_bytes=100,
                            isolation_level="read_committed") as source:
            source.assign([TopicPartition(MAIN, 0)])
            await source.seek_to_beginning()
            found = await read(source, 100)
            return [len(found), found[-1]]
    await step("consume in small pieces", pieces())


async def positions():
    all_partitions = [TopicPartition(MAIN, p) for p in range(3)]

    async def offsets():
        async with consumer() as source:
            times = await source.offsets_for_times({
                all_partitions[0]: T0 + 5000, all_partitions[1]: T0 + 4500, all_partitions[2]: T0 + 10**6})
            return [sorted((await source.beginning_offsets(all_partitions)).items()),
                    sorted((await source.end_offsets(all_partitions)).items()),
                    sorted((p, str(found)) for p, found in times.items())]
    await step("consumer's offsets", offsets())

    async def by_time():
        async with consumer() as source:
            source.assign(all_partitions[:1])
            found = await source.offsets_for_times({all_partitions[0]: T0 + 7000})
            source.seek(all_partitions[0], found[all_partitions[0]].offset)
            return record_shown(await asyncio.wait_for(source.getone(), PATIENCE))
    await step("seek by time", by_time())

    for reset in ("none", "earliest", "latest"):
        async def past_the_end():
            async with consumer(auto_offset_reset=reset) as source:
                source.assign(all_partitions[:1])
                source.seek(all_partitions[0], 1000)
                deadline = asyncio.get_running_loop().time() + PATIENCE
                while asyncio.get_running_loop().time() < deadline:
                    for records in (await source.getmany(timeout_ms=200)).values():
                        return records[0].offset
                    position = await source.position(all_partitions[0])
                    if position != 1000:
                        return position
                sys.exit("the position stays where nothing is")
        await step(f"seek past the end, reset {reset}", past_the_end())


class Held(ConsumerRebalanceListener):
    """What a member holds now."""

    def __init__(self):
        self.partitions = set()

    async def on_partitions_revoked(self, revoked):
        self.partitions -= set(revoked)

    async def on_partitions_assigned(self, assigned):
        self.partitions |= set(assigned)


async def settled(members, partitions):
    calm, last = 0, []
    for _ in range(PATIENCE * 10):
        await asyncio.sleep(0.1)
        sizes = sorted(len(held.partitions) for _, held in members)
        different = len(set().union(*(held.partitions for _, held in members)))
        is_spread = sum(sizes) == different == partitions and sizes[0] >= partitions // len(members)
        calm = calm + 1 if is_spread and sizes == last else 0
        last = sizes
        if calm >= 3:
            return sizes
    sys.exit(f"the group does not settle: {last}")


async def groups(admin):
    async def group_shown(group):
        found = (await admin.describe_consumer_groups([group]))[0].groups[0]
        # error, group, state, protocol type, protocol, members
        members = sorted([member[1], member[2]] for member in found[5])
        return [*found[:5], members]

    for assignor in (RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor):
        group = f"aio-{assignor.name}"
        members = []

        async def join(**settings):
            source = consumer(group_id=group, partition_assignment_strategy=[assignor], heartbeat_interval_ms=200,
                              auto_offset_reset="earliest", **settings)
            held = Held()
            await source.start()
            source.subscribe([MAIN], listener=held)
            members.append((source, held))
            return await settled(members, 3)
        await step(f"group {assignor.name}: first member", join())
        await step(f"group {assignor.name}: second member", join())
        await step(f"group {assignor.name}: a member with a name of its own", join(group_instance_id="aio-static"))
        await step(f"group {assignor.name}: described", group_shown(group))

        async def leave():
            await members.pop(0)[0].stop()
            return await settled(members, 3)
        await step(f"group {assignor.name}: first member leaves", leave())

        async def end():
            while members:
                await members.pop()[0].stop()
            return await group_shown(group)
        await step(f"group {assignor.name}: all leave", end())

    group = "aio-committing"
    first, second = TopicPartition(MAIN, 0), TopicPartition(MAIN, 1)

    async def commit():
        async with consumer(MAIN, group_id=group, auto_offset_reset="earliest") as source:
            await asyncio.wait_for(source.getone(), PATIENCE)
            await source.commit({first: OffsetAndMetadata(7, "seven"), second: 3})
            return [await source.committed(TopicPartition(MAIN, p)) for p in range(3)]
    await step("commit", commit())

    async def resume():
        async with consumer(group_id=group) as source:
            source.assign([first])
            return record_shown(await asyncio.wait_for(source.getone(), PATIENCE))
    await step("resume at the commit", resume())

    async def committed():
        return sorted((p, list(found)) for p, found in (await admin.list_consumer_group_offsets(group)).items())
    await step("list committed offsets", committed())

    async def reset():
        async with consumer(group_id=group) as source:
            source.assign([first])
            await source.seek_to_beginning()
            await source.commit({first: await source.position(first)})
        return await committed()
    await step("reset committed offsets", reset())

    async def listed():
        return sorted(found for found in await admin.list_consumer_groups() if found[0].startswith("aio"))
    await step("list groups", listed())


async def administration(admin):
    async def settings():
        found = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, MAIN)])
        entries = found[0].resources[0][4]
        return sorted([entry[0], entry[1], *entry[2:5]] for entry in entries
                      if entry[3] in (1, 5) and entry[0] not in SINCE_KAFKA_4_4)

    await step("describe topic settings", settings())

    async def alter(values):
        changed = await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, MAIN, values)])
        settle()
        return [str(changed[0].resources), await settings()]
    await step("alter settings", alter({"retention.ms": "-1", "segment.ms": "3600000"}))
    await step("alter to no number", alter({"segment.ms": "later"}))

    for total in (5, 2):
        async def more():
            changed = await admin.create_partitions({MAIN: NewPartitions(total)})
            settle()
            found = await admin.describe_topics([MAIN])
            return [changed.topic_errors, len(found[0]["partitions"])]
        await step(f"create partitions to {total}", more())

    for before in (5, 1000):
        async def delete():
            found = await admin.delete_records({TopicPartition(MAIN, 1): RecordsToDelete(before)})
            return sorted(found.items())
        await step(f"delete records before {before}", delete())

    async def delete_topics():
        return sorted((await admin.delete_topics(["aio-auto", "aio-assigned", "aio-nobody"])).topic_error_codes)
    await step("delete topics", delete_topics())
    settle()

    async def left():
        return sorted(name for name in await admin.list_topics() if name.startswith("aio"))
    await step("topics left", left())


async def main():
    admin = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP, client_id="aio-admin")
    await admin.start()
    await topics_and_records(admin)
    await positions()
    await groups(admin)
    await administration(admin)
    await admin.close()


asyncio.run(main())
