"""aiokafka's script on listeners with TLS and logins: `python … BOOTSTRAP PLACE`."""

import asyncio
import logging
import time

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.helpers import create_ssl_context

from lines import PATIENCE, emit, failure
from place import BEARER, MUTUAL, PLACE, USUAL, WAYS, certificate, masked, name, token, user_of

logging.disable(logging.CRITICAL)

TOPIC = "secured-secured-aiokafka"
PREFIX = "secured-aiokafka-"
# For what does not come: of a topic that it may not read, the client says nothing.
SHORT_PATIENCE = 6


class Bearer(AbstractTokenProvider):
    def __init__(self, user):
        self.user = user

    async def token(self):
        return token(self.user)


async def outcome(action):
    try:
        return await asyncio.wait_for(action, PATIENCE)
    except Exception as error:  # an error of the client is an outcome too
        return masked(failure(error))


async def step(what, action):
    emit(what, await outcome(action))


def login(way, user, password=None, authority="authority.pem"):
    listener, protocol, mechanism = way
    settings = {"bootstrap_servers": PLACE[listener], "security_protocol": protocol, "client_id": "aio",
                "request_timeout_ms": 1000 * PATIENCE}
    if protocol.endswith("SSL"):
        own = {"certfile": certificate(f"{user}.crt"), "keyfile": certificate(f"{user}.key")}
        settings["ssl_context"] = create_ssl_context(cafile=certificate(authority),
                                                     **(own if user and not mechanism else {}))
    if mechanism == "OAUTHBEARER":
        settings |= {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": Bearer(user)}
    elif mechanism:
        settings |= {"sasl_mechanism": mechanism, "sasl_plain_username": user,
                     "sasl_plain_password": f"{user}-secret" if password is None else password}
    return settings


async def send(settings, topic=TOPIC, length=10, **more):
    async with AIOKafkaProducer(**settings, **more) as to:
        await to.send_and_wait(topic, b"v" * length)
    return "sent"


async def read(settings, group=None, patience=PATIENCE):
    source = AIOKafkaConsumer(**settings, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False)
    await source.start()
    try:
        if group:
            source.subscribe([TOPIC])
        else:
            partition = TopicPartition(TOPIC, 0)
            source.assign([partition])
        found = await asyncio.wait_for(source.getone(), patience)
        if group:
            await source.commit()
        return found.offset
    finally:
        await source.stop()


async def listed(settings):
    admin = AIOKafkaAdminClient(**settings)
    await admin.start()
    try:
        return sorted(topic for topic in await admin.list_topics() if "aiokafka" in topic)
    finally:
        await admin.close()


async def main():
    for way in [*WAYS, BEARER]:
        settings = login(way, user_of(way))
        what = f"allowed {name(way)}"
        group = f"secured-aiokafka-{'-'.join(way)}"
        await step(f"{what}, send", send(settings, length=100_000))
        await step(f"{what}, read", read(settings))
        await step(f"{what}, be a member", read(settings, group))
        await step(f"{what}, topics", listed(settings))
    await refused()
    await denied()
    await throttled()


async def refused():
    absent = ("sasl", "SASL_PLAINTEXT", "SCRAM-SHA-512")
    tries = {}
    for way in WAYS[:5]:
        tries[f"{name(way)}, wrong password"] = login(way, "alice", "wrong")
        tries[f"{name(way)}, unknown user"] = login(way, "nobody")
    tries |= {
        "mechanism that is not enabled": login(absent, "alice"),
        "SSL, an authority that the client does not trust": login(MUTUAL, "client", authority="stranger.pem"),
        "SSL, no certificate": login(MUTUAL, None),
        "SSL, an expired certificate": login(MUTUAL, "expired"),
        "SSL, a certificate of another authority": login(MUTUAL, "foreign"),
    }
    for what, settings in tries.items():
        await step(f"refused: {what}", send(settings))


async def denied():
    for user in ("carol", "reader", "member"):
        settings = login(USUAL, user)
        what = f"denied: {user}, "
        await step(what + "produce", send(settings))
        await step(what + "produce, idempotent", send(settings, enable_idempotence=True))
        await step(what + "read a partition", read(settings, None, PATIENCE if user == "reader" else SHORT_PATIENCE))
        await step(what + "be a member", read(settings, f"secured-aiokafka-{user}",
                                              SHORT_PATIENCE if user == "member" else PATIENCE))
        await step(what + "list topics", listed(settings))
        admin = AIOKafkaAdminClient(**settings)
        await admin.start()
        await step(what + "create a topic", shown(admin.create_topics([NewTopic("secured-aiokafka-more", 1, 1)])))
        await step(what + "delete a topic", shown(admin.delete_topics([TOPIC])))
        await step(what + "create partitions", shown(admin.create_partitions({TOPIC: NewPartitions(2)})))
        await step(what + "describe groups", shown(admin.describe_consumer_groups([f"secured-aiokafka-{user}"])))
        await admin.close()


async def shown(action):
    return str(await action)


async def throttled():
    async def held_back():
        began = time.monotonic()
        async with AIOKafkaProducer(**login(USUAL, f"{PREFIX}slow")) as to:
            for _ in range(5):
                await to.send_and_wait(TOPIC, b"v" * 1500)
        return time.monotonic() - began > 0.5
    await step("throttled: a producer", held_back())


asyncio.run(main())
