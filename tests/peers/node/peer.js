// azure-iot-device from npm as a module of the emulated device.
//
// Reads one JSON command a line from standard input and answers each with one JSON line on standard output; what the
// SDK hands over by itself comes as lines with "event". The environment is the one that edgeAgent gives a module.
// PEER_TOKEN_SECONDS shortens the life of tokens. Never decides what is right.
'use strict';

const readline = require('readline');
const { promisify } = require('util');
const { ModuleClient, Message } = require('azure-iot-device');
const { Mqtt } = require('azure-iot-device-mqtt');

const say = (line) => process.stdout.write(JSON.stringify(line) + '\n');
let client;
let twin;

// ModuleClient.fromEnvironment has no setting for the life of tokens; with PEER_TOKEN_SECONDS this does what it does,
// with the SDK's own parts.
async function fromEnvironment(seconds) {
  if (!seconds) {
    return promisify(ModuleClient.fromEnvironment)(Mqtt);
  }
  const { IotEdgeAuthenticationProvider } = require('azure-iot-device/dist/iotedge_authentication_provider');
  const provider = new IotEdgeAuthenticationProvider({
    workloadUri: process.env.IOTEDGE_WORKLOADURI,
    deviceId: process.env.IOTEDGE_DEVICEID,
    moduleId: process.env.IOTEDGE_MODULEID,
    iothubHostName: process.env.IOTEDGE_IOTHUBHOSTNAME,
    authScheme: process.env.IOTEDGE_AUTHSCHEME,
    gatewayHostName: process.env.IOTEDGE_GATEWAYHOSTNAME,
    generationId: process.env.IOTEDGE_MODULEGENERATIONID,
  }, seconds, seconds - 5);
  const ca = await promisify(provider.getTrustBundle.bind(provider))();
  const made = ModuleClient.fromAuthenticationProvider(provider, Mqtt);
  await made.setOptions({ ca });
  return made;
}

function onMethod(request, response) {
  say({ event: 'method', name: request.methodName, payload: request.payload });
  response.send(200, request.payload, (error) => error && say({ event: 'error', error: String(error) }));
}

const commands = {
  async connect() {
    client = await fromEnvironment(Number(process.env.PEER_TOKEN_SECONDS || 0));
    client.on('error', (error) => say({ event: 'error', error: String(error) }));
    client.on('disconnect', () => say({ event: 'connection', connected: false }));
    client.on('connect', () => say({ event: 'connection', connected: true }));
    client.on('inputMessage', (input, message) => {
      const properties = {};
      for (const { key, value } of message.properties.propertyList) properties[key] = value;
      say({ event: 'input', input, body: message.getData().toString(), properties });
      client.complete(message, () => {});
    });
    await client.open();
    client.onMethod('echo', onMethod);
    twin = await client.getTwin();
    twin.on('properties.desired', (patch) => say({ event: 'desired', patch }));
    return {};
  },
  async twin() {
    await promisify(twin.get.bind(twin))();
    const { desired, reported } = JSON.parse(JSON.stringify(twin.properties, (key, value) =>
      (typeof value === 'function' ? undefined : value)));
    return { twin: { desired, reported } };
  },
  async report({ patch }) {
    await promisify(twin.properties.reported.update.bind(twin.properties.reported))(patch);
    return {};
  },
  async send({ output, id, body, properties }) {
    const message = new Message(JSON.stringify(body));
    message.contentType = 'application/json';
    message.contentEncoding = 'utf-8';
    message.messageId = id;
    for (const [key, value] of Object.entries(properties)) message.properties.add(key, value);
    await client.sendOutputEvent(output, message);
    return {};
  },
  async quit() {
    await client.close();
    return {};
  },
};

(async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const command = JSON.parse(line);
    try {
      say({ done: command.do, ...(await commands[command.do](command)) });
    } catch (error) {
      say({ done: command.do, error: String(error) });
    }
    if (command.do === 'quit') process.exit(0);
  }
})();
