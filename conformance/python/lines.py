"""What the Python scripts print: one line of JSON a step, {"step": …, "outcome": …}, the same on every run.

Also the series of records that they produce: keys, values and headers that are there, empty and null, with fixed
timestamps.
"""

import json
import time
import zlib

T0 = 1_700_000_000_000

# Settings of Kafka 4.4, which Ottla shows and the Kafka that it is compared with, 4.3.1, does not have.
SINCE_KAFKA_4_4 = {
    "errors.deadletterqueue.auto.create.topics.enable", "errors.deadletterqueue.group.enable",
    "errors.deadletterqueue.topic.name.prefix", "group.streams.assignors",
    "group.streams.rack.aware.assignment.tags", "group.streams.topology.description.plugin.class",
    "log.remote.copy.lag.bytes", "log.remote.copy.lag.ms", "max.decompressed.message.bytes",
    "remote.copy.lag.bytes", "remote.copy.lag.ms", "sasl.oauthbearer.allow.unverified.audience",
    "sasl.oauthbearer.allow.unverified.issuer", "streams.assignor.name", "streams.rack.aware.assignment.tags"
}


def emit(name, outcome):
    print(json.dumps({"step": name, "outcome": outcome}, sort_keys=False, default=str), flush=True)


def failure(error):
    """An error as an outcome: its class and what it says."""
    return f"! {type(error).__name__}: {error}"


def record(i):
    """Key, value, headers and timestamp of the i-th record of a series."""
    key = None if i % 5 == 4 else f"key-{i}".encode()
    value = None if i % 7 == 6 else (f"value-{i} ".encode() * (i * i))
    headers = [("same", f"header-{n}".encode()) for n in range(i % 3)]
    if i % 4 == 3:
        headers.append(("empty", b""))
    return key, value, headers, T0 + i * 1000


def checksum(value):
    return None if value is None else f"{len(value)}/{zlib.crc32(value):08x}"


def text(value):
    return None if value is None else value.decode()


def settle():
    """A controller's answer may come before the broker has taken the change over."""
    time.sleep(1)
