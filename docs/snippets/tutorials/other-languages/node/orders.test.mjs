import assert from "node:assert/strict";
import { test } from "node:test";
import kafkajs from "kafkajs";

const { OTTLA_BOOTSTRAP, OTTLA_CONTROL, OTTLA_CONTROL_TOKEN } = process.env;
const topic = "orders-node";

/** One call to the control plane. */
async function control(method, path, body) {
  const headers = { Authorization: `Bearer ${OTTLA_CONTROL_TOKEN}` };
  const response = await fetch(`${OTTLA_CONTROL}/v1${path}`, { method, headers, body: body && JSON.stringify(body) });
  assert(response.ok, `${response.status} ${await response.clone().text()}`);
  return response.json();
}

const stored = async () => (await control("GET", `/topics/${topic}/records`)).records.length;

test("an order is stored once, and deleted after eight days", async (t) => {
  await control("POST", "/topics", { name: topic });
  await control("POST", "/faults", { action: "disconnect", when: "after", api: "Produce", topic, times: 1 });

  const kafka = new kafkajs.Kafka({ brokers: [OTTLA_BOOTSTRAP], logLevel: kafkajs.logLevel.NOTHING });
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  t.after(() => producer.disconnect());

  await producer.send({ topic, messages: [{ value: "bread" }] });
  assert.equal(await stored(), 1);
  await control("POST", "/clock/advance", { ms: 8 * 24 * 3600 * 1000 });
  assert.equal(await stored(), 0);
});
