// The official JavaScript SDK as a client of the broker: node javascript_client.mjs URL BINDING VERSION WEBHOOK
// Every step of ``tests/conformance/test_foreign_clients.py``; what it saw is printed as JSON.
import { randomUUID } from 'node:crypto';
import {
  ClientFactory, ClientFactoryOptions, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory,
} from '@a2a-js/sdk/client';
import { GrpcTransportFactory } from '@a2a-js/sdk/client/grpc';

const [url, binding, version, webhook] = process.argv.slice(2);
const legacyCompat = { enabled: version === '0.3' };
const STATES = ['unspecified', 'submitted', 'working', 'completed', 'failed', 'canceled', 'input_required', 'rejected', 'auth_required'];

async function connect() {
  const card = await (await fetch(`${url}/.well-known/agent-card.json`)).json();
  if (version === '0.3') {
    // The members of 0.3, of which this one address is preferred.
    delete card.supportedInterfaces;
    card.additionalInterfaces = card.additionalInterfaces.filter((one) => one.transport === binding);
    card.preferredTransport = binding;
    card.url = card.additionalInterfaces[0].url;
  } else {
    card.supportedInterfaces = card.supportedInterfaces.filter(
      (one) => one.protocolBinding === binding && one.protocolVersion === version);
  }
  const factory = new ClientFactory(ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
    transports: [
      new JsonRpcTransportFactory({ legacyCompat }), new RestTransportFactory({ legacyCompat }),
      new GrpcTransportFactory({ legacyCompat }),
    ],
  }));
  const read = new DefaultAgentCardResolver({ legacyCompat }).normalizeAgentCard(card);
  return [await factory.createFromAgentCard(read), read];
}

function message(text, more = {}) {
  return {
    messageId: randomUUID(), contextId: '', taskId: '', role: 1, metadata: undefined, extensions: [], referenceTaskIds: [],
    parts: [{ content: { $case: 'text', value: text }, metadata: undefined, filename: '', mediaType: '' }], ...more,
  };
}

function params(text, more, configuration = {}) {
  return {
    tenant: '', message: message(text, more), metadata: undefined,
    configuration: { acceptedOutputModes: [], taskPushNotificationConfig: undefined, returnImmediately: false, ...configuration },
  };
}

const words = (parts) => parts.map((part) => (part.content?.$case === 'text' ? part.content.value : '')).join('');
const state = (task) => STATES[task.status.state];

function seen(task) {
  const artifacts = task.artifacts.map((artifact) => words(artifact.parts)).join('');
  return { state: state(task), text: artifacts || words(task.status.message?.parts ?? []) };
}

async function told(stream) {
  const heard = [];
  for await (const event of stream) {
    const { $case: kind, value } = event.payload;
    const word = kind === 'artifactUpdate' ? words(value.artifact.parts) : state(value);
    if (heard.at(-1) !== word) heard.push(word);
  }
  return heard;
}

const [client, card] = await connect();
const report = { name: card.name };

const sent = await client.sendMessage(params('echo'));
report.sent = seen(sent);
report.read = state(await client.getTask({ tenant: '', id: sent.id }));
report.streamed = await told(client.sendMessageStream(params('echo')));

const asked = await client.sendMessage(params('ask'));
report.asked = seen(asked);
report.answered = seen(await client.sendMessage(params('blue', { taskId: asked.id, contextId: asked.contextId })));

const followed = await client.sendMessage(params('ask'));
const following = client.resubscribeTask({ tenant: '', id: followed.id });
const first = await following.next();
await client.sendMessage(params('red', { taskId: followed.id, contextId: followed.contextId }));
report.followed = [state(first.value.payload.value), ...(await told(following))];

const waiting = client.sendMessageStream(params('wait'));
let open;
for (;;) {
  const { value } = await waiting.next();
  open ??= value.payload.value.id;
  if (STATES[value.payload.value.status.state] === 'working') break;
}
report.canceled = state(await client.cancelTask({ tenant: '', id: open, metadata: undefined }));
report.ended = (await told(waiting)).at(-1);

const pushed = await client.sendMessage(params('ask'));
const config = { tenant: '', id: 'hook', taskId: pushed.id, url: webhook, token: 'secret', authentication: undefined };
await client.createTaskPushNotificationConfig(config);
const other = { ...config, id: 'other' };
await client.createTaskPushNotificationConfig(other);
report.webhook = (await client.getTaskPushNotificationConfig({ tenant: '', taskId: pushed.id, id: 'hook' })).url === webhook;
await client.deleteTaskPushNotificationConfig({ tenant: '', taskId: pushed.id, id: 'other' });
const listed = await client.listTaskPushNotificationConfig({ tenant: '', taskId: pushed.id, pageSize: 0, pageToken: '' });
report.webhooks = listed.configs.map((one) => one.id);
await client.sendMessage(params('green', { taskId: pushed.id, contextId: pushed.contextId }));
report.pushed = pushed.id;

try {
  await client.getTask({ tenant: '', id: 'nobody' });
} catch (error) {
  report.refused = error.constructor.name;
}
console.log(JSON.stringify(report));
process.exit(0);
