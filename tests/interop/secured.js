// Logs in to a broker in several ways with kafkajs, each with records that are written and read.
//
// Arguments: a file in PEM with what is trusted, one with a key and its certificate, how many records each way writes, one
// in a millisecond, or one record without this; and how many milliseconds a transaction lasts: one that is committed and one
// that is aborted, in place of the records. A line of the standard input is one way: name, address, security protocol, mechanism, user, password or token, separated by tabs. Prints a line for each.
"use strict";
const fs = require("fs");
const { Kafka, logLevel } = require("kafkajs");

const [trusted, own] = process.argv.slice(2, 4).map((path) => fs.readFileSync(path, "utf8"));
const records = Number(process.argv[4] || 1);
const millis = Number(process.argv[5] || 0);
const pause = (time) => new Promise((resolve) => setTimeout(resolve, time));

function settings([name, address, protocol, mechanism, username, password]) {
  const found = { clientId: name, brokers: [address], logLevel: logLevel.NOTHING, retry: { retries: 3 } };
  if (records > 1) found.retry = { retries: 30, maxRetryTime: 1000 };
  if (millis) found.reauthenticationThreshold = 1000;
  if (protocol.endsWith("SSL")) found.ssl = protocol === "SSL" ? { ca: [trusted], key: own, cert: own } : { ca: [trusted] };
  if (protocol.startsWith("SASL") && mechanism === "OAUTHBEARER")
    found.sasl = { mechanism: "oauthbearer", oauthBearerProvider: async () => ({ value: password }) };
  else if (protocol.startsWith("SASL")) found.sasl = { mechanism: mechanism.toLowerCase(), username, password };
  return found;
}

async function sendAndRead(way) {
  const kafka = new Kafka(settings(way));
  const producer = kafka.producer();
  await producer.connect();
  const missing = new Set();
  const sent = [];
  for (let i = 0; i < records; i++) {
    missing.add(way[0] + i);
    sent.push(producer.send({ topic: way[0], messages: [{ value: way[0] + i }] }));
    // The first creates the topic; each of them alone would wait for it in a way of its own.
    if (i === 0) await sent[0];
    else await pause(1);
  }
  await Promise.all(sent);
  await producer.disconnect();
  await read(kafka, way, missing);
}

async function transact(way) {
  const kafka = new Kafka(settings(way));
  const producer = kafka.producer({ transactionalId: way[0], maxInFlightRequests: 1, idempotent: true });
  await producer.connect();
  const missing = new Set();
  for (const kind of ["aborted", "committed"]) {
    const transaction = await producer.transaction();
    const end = Date.now() + millis;
    for (let i = 0; Date.now() < end; i++) {
      await transaction.send({ topic: way[0], messages: [{ value: kind + i }] });
      if (kind === "committed") missing.add(kind + i);
      await pause(20);
    }
    await (kind === "committed" ? transaction.commit() : transaction.abort());
  }
  await producer.disconnect();
  await read(kafka, way, missing);
}

async function read(kafka, way, missing) {
  const consumer = kafka.consumer({ groupId: way[0], maxWaitTimeInMs: 200, readUncommitted: false });
  await consumer.connect();
  await consumer.subscribe({ topics: [way[0]], fromBeginning: true });
  await new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Error(`${missing.size} records did not come`)), missing.size > 1 ? 60000 : 20000);
    const eachMessage = async ({ message }) => {
      if (message.value.toString().startsWith("aborted")) reject(new Error("an aborted record"));
      missing.delete(message.value.toString());
      if (!missing.size) { clearTimeout(late); resolve(); }
    };
    consumer.run({ eachMessage }).catch(reject);
  });
  await consumer.disconnect();
}

async function main() {
  for (const line of fs.readFileSync(0, "utf8").split("\n").filter(Boolean)) {
    const way = line.split("\t");
    try {
      await (millis ? transact(way) : sendAndRead(way));
      console.log(way[0], "ok");
    } catch (error) {
      const texts = [error, error.cause, error.originalError].filter(Boolean).map((one) => `${one.name} ${one.message}`).join("; ");
      const refused = /SASLAuthentication|self.signed|unable to verify|certificate/i.test(texts);
      console.log(way[0], refused ? "refused" : `failed ${texts}`);
    }
  }
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
