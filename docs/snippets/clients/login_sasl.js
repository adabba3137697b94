const { Kafka } = require("kafkajs");

const plain = { mechanism: "plain", username: "ann", password: "ann-secret" };
const scram = { mechanism: "scram-sha-256", username: "joe", password: "joe-secret" };

async function main() {
  for (const sasl of [plain, scram]) {
    const producer = new Kafka({ brokers: ["127.0.0.1:9093"], sasl }).producer();
    await producer.connect();
    await producer.send({ topic: "hello", messages: [{ value: sasl.username }] });
    await producer.disconnect();
    console.log(sasl.mechanism, "sent");
  }
}

main();
