// Logs in to a broker in several ways with kafkajs, each with a record that is written and read.
//
// Arguments: a file in PEM with what is trusted, one with a key and its certificate. A line of the standard input is one
// way: name, address, security protocol, mechanism, user, password or token, separated by tabs. Prints a line for each.
"use strict";
const fs = require("fs");
const { Kafka, logLevel } = require("kafkajs");

const [trusted, own] = process.argv.slice(2).map((path) => fs.readFileSync(path, "utf8"));

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
  await producer.send({ topic: way[0], messages: [{ value: way[0] }] });
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: way[0], maxWaitTimeInMs: 200 });
  await consumer.connect();
  await consumer.subscribe({ topics: [way[0]], fromBeginning: true });
  await new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Error("the record did not come")), 20000);
    consumer.run({ eachMessage: async () => { clearTimeout(late); resolve(); } }).catch(reject);
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
