"""What the Python scripts print: one line of JSON a step, {"step": …, "outcome": …}, the same on every run.

Also the series of records that they produce: keys, values and headers that are there, empty and null, with fixed
timestamps.
"""

import itertools
import json
import os
import socket
import struct
import sys
import time
import zlib

T0 = 1_700_000_000_000
# How long what is to come may take, in seconds, on a machine that does much else.
PATIENCE = 60

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


_MARKER = f"settled-{os.getpid()}"
_SETTING = "consumer.session.timeout.ms"
_values = itertools.count(45_001)


def _string(value):
    return struct.pack(">h", len(value)) + value.encode()


def _receive(connection, length):
    received = b""
    while len(received) < length:
        part = connection.recv(length - len(received))
        if not part:
            sys.exit("the broker has closed the connection")
        received += part
    return received


def _ask(connection, api, version, body):
    request = struct.pack(">hhi", api, version, 1) + _string("settle") + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    return _receive(connection, struct.unpack(">i", _receive(connection, 4))[0])


def settle():
    """A controller's answer may come before the broker has taken the change over. Waits until the only broker has
    applied every change before this call, as `Script.settle` of the Java scripts does: with two changes of a group's
    setting (IncrementalAlterConfigs v0), each of which is then described (DescribeConfigs v1)."""
    host, port = sys.argv[1].rsplit(":", 1)
    # One resource of the type of groups, and one setting of it.
    resource = struct.pack(">ib", 1, 32) + _string(_MARKER) + struct.pack(">i", 1) + _string(_SETTING)
    with socket.create_connection((host, int(port)), PATIENCE) as connection:
        for _ in range(2):
            value = _string(str(next(_values)))
            answer = _ask(connection, 44, 0, resource + b"\0" + value + b"\0")
            # After the correlation ID, the throttle time and the length of the array.
            error = struct.unpack_from(">h", answer, 12)[0]
            if error:
                sys.exit(f"the setting of a group is refused with error {error}")
            deadline = time.monotonic() + PATIENCE
            while _string(_SETTING) + value not in _ask(connection, 32, 1, resource + b"\0"):
                if time.monotonic() > deadline:
                    sys.exit(f"a change is not applied after {PATIENCE} s")
                time.sleep(0.02)
