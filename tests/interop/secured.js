// Logs in to a broker in several ways with kafkajs, each with records that are written and read.
//
// Arguments: a file in PEM with what is trusted, one with a key and its certificate, and how many records each way writes,
// one in a millisecond; one record without this. A line of the standard input is one way: name, address, security protocol, mechanism, user, password or token, separated by tabs. Prints a line for each.
"use strict";
const fs = require("fs");
const { Kafka, logLevel } = require("kafkajs");

const [trusted, own] = process.argv.slice(2, 4).map((path) => fs.readFileSync(path, "utf8"));
const records = Number(process.argv[4] || 1);

function settings([name, address, protocol, mechanism, username, password]) {
  const found = { clientId: name, brokers: [address], logLevel: logLevel.NOTHING, retry: { retries: 3 } };
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
    else await new Promise((resolve) => setTimeout(resolve, 1));
  }
  await Promise.all(sent);
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: way[0], maxWaitTimeInMs: 200 });
  await consumer.connect();
  await consumer.subscribe({ topics: [way[0]], fromBeginning: true });
  await new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Error(`${missing.size} records did not come`)), 20000);
    const eachMessage = async ({ message }) => {
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
      await sendAndRead(way);
      console.log(way[0], "ok");
    } catch (error) {
      const texts = [error, error.cause, error.originalError].filter(Boolean).map((one) => `${one.name} ${one.message}`).join("; ");
      const refused = /SASLAuthentication|self.signed|unable to verify|certificate/i.test(texts);
      console.log(way[0], refused ? "refused" : `failed ${texts}`);
    }
  }
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
