// kafkajs driven by lines, as line_clients.py says. Its consumers are always members of a group.
"use strict";
const readline = require("readline");
const { Kafka, logLevel, Partitioners, CompressionTypes, CompressionCodecs } = require("kafkajs");
CompressionCodecs[CompressionTypes.Snappy] = require("kafkajs-snappy");

const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy };
const decoded = (text) => (text === "-" ? null : Buffer.from(text.slice(1), "hex"));
const encoded = (bytes) => (bytes === null || bytes === undefined ? "-" : "x" + Buffer.from(bytes).toString("hex"));

function kafka(address) {
  const retry = { retries: 3, initialRetryTime: 100 };
  return new Kafka({ clientId: "kafkajs", brokers: [address], logLevel: logLevel.NOTHING, retry, requestTimeout: 10000 });
}

function message(line) {
  const [timestamp, key, value, named] = line.split(" ");
  const headers = {};
  if (named !== "-")
    for (const pair of named.split(",")) {
      const [name, text] = pair.split("=");
      headers[name] = name in headers ? [].concat(headers[name], decoded(text)) : decoded(text);
    }
  const made = { key: decoded(key), value: decoded(value), partition: 0, headers };
  return timestamp === "-1" ? made : { ...made, timestamp };
}

async function produce(address, [topic, codec], rows) {
  const producer = kafka(address).producer({ createPartitioner: Partitioners.DefaultPartitioner });
  await producer.connect();
  try {
    const [told] = await producer.send({ topic, acks: -1, compression: CODECS[codec], messages: rows.map(message) });
    return "ok " + rows.map((_, i) => BigInt(told.baseOffset ?? told.offset) + BigInt(i)).join(" ");
  } finally {
    await producer.disconnect();
  }
}

function headersOf(message) {
  const pairs = [];
  for (const [name, value] of Object.entries(message.headers ?? {}))
    for (const one of [].concat(value)) pairs.push(`${name}=${encoded(one)}`);
  return pairs.join(",") || "-";
}

async function consume(address, [topic, start, count, seconds]) {
  const consumer = kafka(address).consumer({ groupId: `kafkajs-${topic}-${start}`, maxWaitTimeInMs: 100 });
  await consumer.connect();
  const lines = [];
  try {
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    await new Promise((resolve, reject) => {
      setTimeout(resolve, 1000 * Number(seconds)).unref();
      consumer.on(consumer.events.CRASH, (event) => reject(event.payload.error));
      consumer
        .run({
          autoCommit: false,
          eachMessage: async ({ message: m }) => {
            if (BigInt(m.offset) < BigInt(start)) return;
            const stamp = m.timestamp === undefined ? "NoTimestampType -1" : `CreateTime ${m.timestamp}`;
            lines.push(`record ${m.offset} ${stamp} ${encoded(m.key)} ${encoded(m.value)} ${headersOf(m)}`);
            if (lines.length >= Number(count)) resolve();
          },
        })
        .catch(reject);
      consumer.seek({ topic, partition: 0, offset: start });
    });
  } finally {
    await consumer.disconnect();
  }
  return [...lines, "end"].join("\n");
}

async function main() {
  const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  for (let next = await lines.next(); !next.done; next = await lines.next()) {
    const [address, verb, ...words] = next.value.split(" ");
    try {
      if (verb === "produce") {
        const rows = [];
        for (let i = 0; i < Number(words[2]); i++) rows.push((await lines.next()).value);
        console.log(await produce(address, words, rows));
      } else console.log(await consume(address, words));
    } catch (error) {
      console.log("error " + `${error.name}: ${error.message}`.replace(/\n/g, " "));
    }
  }
}

main().then(() => process.exit(0));
