import assert from "node:assert/strict";
import { test } from "node:test";
import kafkajs from "kafkajs";

const { OTTLA_BOOTSTRAP, OTTLA_CONTROL } = process.env;
const topic = "orders-node";

async function control(method, path, body) {
  const answer = await fetch(`${OTTLA_CONTROL}/v1${path}`, { method, body: body && JSON.stringify(body) });
  assert(answer.ok, `${method} ${path}: ${answer.status} ${await answer.clone().text()}`);
  return answer.json();
}

const stored = async () => (await control("GET", `/topics/${topic}/records`)).records.map((record) => record.value);
const fault = (rule) => control("POST", "/faults", { api: "Produce", topic, times: 1, ...rule });
const send = (producer, value) => producer.send({ topic, messages: [{ value }] });

test("orders", async (t) => {
  await control("POST", "/topics", { name: topic });
  const logLevel = kafkajs.logLevel.NOTHING;
  const kafka = new kafkajs.Kafka({ clientId: "orders", brokers: [OTTLA_BOOTSTRAP], logLevel });
  const [plain, idempotent] = [kafka.producer(), kafka.producer({ idempotent: true, maxInFlightRequests: 1 })];
  await Promise.all([plain.connect(), idempotent.connect()]);
  t.after(() => Promise.all([plain.disconnect(), idempotent.disconnect()]));
  await control("POST", "/snapshots", { name: "node" });

  await t.test("the broker appends and its answer is lost: sent again, and stored twice", async () => {
    const { id } = await fault({ action: "disconnect", when: "after" });
    await send(plain, "bread");
    assert.equal((await control("GET", `/faults/${id}`)).fired, 1);
    assert.deepEqual(await stored(), ["bread", "bread"]);
  });

  await t.test("all is as it was before; an idempotent producer stores it once", async () => {
    await control("POST", "/snapshots/node/restore");
    const { id } = await fault({ action: "disconnect", when: "after" });
    await send(idempotent, "bread");
    assert.equal((await control("GET", `/faults/${id}`)).fired, 1);
    assert.deepEqual(await stored(), ["bread"]);
  });

  await t.test("what was asked is as it has to be", async () => {
    const expected = { api: "Produce", client_id: "orders", topic, acks: -1, max_version: 7, min_count: 3 };
    const verdict = await control("POST", "/requests/assert", expected);
    assert(verdict.passed, verdict.text);
    assert((await control("POST", "/requests/assert", { topic, codec: "gzip", none: true })).passed);
  });

  await t.test("an error that is hard to bring about reaches the application", async () => {
    await fault({ action: "error", code: "TOPIC_AUTHORIZATION_FAILED" });
    await assert.rejects(send(plain, "milk"), { type: "TOPIC_AUTHORIZATION_FAILED" });
  });

  await t.test("eight days pass, and retention takes the order", async () => {
    await control("POST", "/clock/advance", { ms: 8 * 24 * 3600 * 1000 });
    assert.deepEqual(await stored(), []);
  });
});
