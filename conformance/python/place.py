"""Where the scripts on secured listeners find their broker, and how clients get in there."""

import json
import re
import sys

with open(sys.argv[2], encoding="utf-8") as file:
    PLACE = json.load(file)

# Listener, protocol, mechanism.
WAYS = [("sasl", "SASL_PLAINTEXT", "PLAIN"), ("sasl", "SASL_PLAINTEXT", "SCRAM-SHA-256"),
        ("saslssl", "SASL_SSL", "PLAIN"), ("saslssl", "SASL_SSL", "SCRAM-SHA-256"),
        ("saslssl", "SASL_SSL", "SCRAM-SHA-512"), ("ssl", "SSL", "")]
USUAL, MUTUAL = WAYS[4], WAYS[5]
# With a token of the run's issuer, in a file of the name that stands for the user.
BEARER = ("oauth", "SASL_PLAINTEXT", "OAUTHBEARER")


def name(way):
    return " ".join(part for part in way[1:] if part)


def user_of(way):
    """Who gets in this way."""
    return {"": "client", "OAUTHBEARER": "valid"}.get(way[2], "alice")


def token(user):
    with open(certificate(f"{user}.jwt"), encoding="utf-8") as text:
        return text.read()


def certificate(file_name):
    return f"{PLACE['certificates']}/{file_name}"


def masked(message):
    """An error's text without what two runs cannot share."""
    # Which alert says that a certificate will not do is the TLS library's choice.
    message = re.sub(r"\[SSL: \w*ALERT\w*\].*|(ssl/)?\w+ alert [a-z ]+(: ?SSL alert number \d+)?",
                     "alert", message)
    # Librdkafka cuts long messages, and Kafka's has all that it knows of the request.
    message = re.sub(r"Request (Request\(|\w+ of ).*", "Request …", message, flags=re.DOTALL)
    message = re.sub(r"', \d+, <", "', …, <", message)
    message = re.sub(r"after \d+ms|\(after \d+ms in state [A-Z_]+\)", "after …", message)
    message = re.sub(r"\d+(\.\d+)? ?(ms|seconds|s)\b", "…", message)
    return re.sub(r"0x[0-9a-f]+|\(_ssl\.c:\d+\)|:[a-z_/0-9.]+\.c:\d+:|[0-9A-F]{8,}", "…", message)
