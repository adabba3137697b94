const fs = require("fs");
const { Kafka } = require("kafkajs");

async function main() {
  const kafka = new Kafka({ brokers: ["127.0.0.1:9093"], ssl: { ca: [fs.readFileSync("ca.pem", "utf8")] } });
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic: "hello", messages: [{ value: "over TLS" }] });
  await producer.disconnect();
  console.log("sent");
}

main();
