"""azure-iot-device from PyPI as a module of the emulated device.

Reads one JSON command a line from standard input and answers each with one JSON line on standard output; what the SDK
hands over by itself (desired patches, methods, inputs, connection changes) comes as lines with "event". The environment
is the one that edgeAgent gives a module. PEER_TOKEN_SECONDS shortens the life of tokens. Never decides what is right.
"""

import json
import logging
import os
import sys
import threading

from azure.iot.device import IoTHubModuleClient, Message, MethodResponse

logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
OUT = threading.Lock()


def say(**line):
    with OUT:
        print(json.dumps(line), flush=True)


def on_method(request):
    say(event="method", name=request.name, payload=request.payload)
    known = request.name == "echo"
    response = MethodResponse.create_from_method_request(
        request, 200 if known else 404, request.payload if known else {"unknown": request.name}
    )
    CLIENT.send_method_response(response)


def on_message(message):
    say(event="input", input=message.input_name, body=message.data.decode(), properties=message.custom_properties)


def send(command):
    message = Message(json.dumps(command["body"]))
    message.content_type = "application/json"
    message.content_encoding = "utf-8"
    message.message_id = command["id"]
    message.custom_properties.update(command["properties"])
    CLIENT.send_message_to_output(message, command["output"])
    return {}


def report(command):
    CLIENT.patch_twin_reported_properties(command["patch"])
    return {}


def connect(_):
    CLIENT.connect()
    CLIENT.on_method_request_received = on_method
    CLIENT.on_twin_desired_properties_patch_received = lambda patch: say(event="desired", patch=patch)
    CLIENT.on_message_received = on_message
    return {}


def quit_(_):
    CLIENT.shutdown()
    return {}


COMMANDS = {
    "connect": connect,
    "twin": lambda _: {"twin": CLIENT.get_twin()},
    "report": report,
    "send": send,
    "quit": quit_,
}

SECONDS = os.environ.get("PEER_TOKEN_SECONDS")
# A link that was dropped is to be tried again soon rather than after the SDK's ten seconds.
OPTIONS = {"connection_retry_interval": 1, **({"sastoken_ttl": int(SECONDS)} if SECONDS else {})}
CLIENT = IoTHubModuleClient.create_from_edge_environment(**OPTIONS)
CLIENT.on_connection_state_change = lambda: say(event="connection", connected=CLIENT.connected)

for line in sys.stdin:
    order = json.loads(line)
    try:
        say(done=order["do"], **COMMANDS[order["do"]](order))
    except Exception as error:  # whatever it is, the other side decides what it means
        say(done=order["do"], error=repr(error))
    if order["do"] == "quit":
        break
