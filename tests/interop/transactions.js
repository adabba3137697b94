// Copies the topic in to the topic out with kafkajs, in transactions; aborts every third.
//
// Arguments: address, transactional id and group, how many records there are in all. Prints a line for each transaction,
// and ends when all are copied; with 1 when something failed, to be started again.
"use strict";
const { Kafka, logLevel } = require("kafkajs");

const SIZE = 60;

async function main([address, name, total]) {
  const retry = { retries: 20, initialRetryTime: 100, maxRetryTime: 500 };
  const kafka = new Kafka({ clientId: name, brokers: [address], logLevel: logLevel.NOTHING, retry });
  const producer = kafka.producer({ transactionalId: name, maxInFlightRequests: 1, idempotent: true, transactionTimeout: 10000 });
  await producer.connect(); // what a predecessor left open is aborted before any offset is asked for
  const times = { sessionTimeout: 2000, heartbeatInterval: 300, maxWaitTimeInMs: 200, rebalanceTimeout: 5000 };
  const consumer = kafka.consumer({ groupId: name, readUncommitted: false, ...times });
  await consumer.connect();
  await consumer.subscribe({ topics: ["in"], fromBeginning: true });
  let round = 0;
  const stopped = new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, (event) => reject(event.payload.error));
    const eachBatch = async ({ batch, resolveOffset, heartbeat, isRunning, isStale }) => {
      for (let start = 0; start < batch.messages.length && isRunning() && !isStale(); start += SIZE) {
        const part = batch.messages.slice(start, start + SIZE);
        const next = BigInt(part[part.length - 1].offset) + 1n;
        const transaction = await producer.transaction();
        await transaction.send({ topic: "out", messages: part.map((one) => ({ value: one.value, partition: 0 })) });
        const partitions = [{ partition: 0, offset: String(next) }];
        await transaction.sendOffsets({ consumerGroupId: name, topics: [{ topic: "in", partitions }] });
        if (++round % 3 === 0) {
          await transaction.abort();
          start -= SIZE; // once more
        } else {
          await transaction.commit();
          resolveOffset(String(next - 1n));
        }
        console.log(round % 3 !== 0, String(next - 1n));
        if (round % 3 !== 0 && next >= BigInt(total)) return resolve();
        await heartbeat();
      }
    };
    consumer.run({ autoCommit: false, eachBatchAutoResolve: false, eachBatch }).catch(reject);
  });
  await stopped;
}

main(process.argv.slice(2)).then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
