// Testcontainers for Node.js, its KafkaContainer on an image, with and without KRaft: one message there and back.
//
//     node node_module.mjs IMAGE:TAG    beside a node_modules with @testcontainers/kafka and kafkajs
import { KafkaContainer } from "@testcontainers/kafka";
import kafkajs from "kafkajs";
const { Kafka, logLevel } = kafkajs;

async function exchange(bootstrap) {
  const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING });
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic: "test-topic", messages: [{ value: "verification message" }] });
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: "g" });
  await consumer.connect();
  await consumer.subscribe({ topic: "test-topic", fromBeginning: true });
  const value = await new Promise((found) => consumer.run({ eachMessage: async ({ message }) => found(message.value) }));
  await consumer.disconnect();
  if (value.toString() !== "verification message") throw new Error(`read ${value}`);
}

const ran = [];
for (const kraft of [false, true]) {
  const begun = Date.now();
  // It waits for all ports that the image exposes, where an engine (podman 4) names those as asked for, too.
  const wanted = new KafkaContainer(process.argv[2]).withExposedPorts(9092);
  const container = await (kraft ? wanted.withKraft() : wanted).start();
  ran.push(`KafkaContainer${kraft ? " with KRaft" : ""} in ${(Date.now() - begun) / 1000} s`);
  await exchange(`${container.getHost()}:${container.getMappedPort(9093)}`);
  await container.stop();
}
console.log(ran.join(", "));
process.exit(0);
