// Every method of kafkajs's admin, with good and with bad input, in one order.
//
// Argument: address. Prints a line of JSON for each call: its name, and what it answered or the error.
"use strict";
const { Kafka, logLevel } = require("kafkajs");

const LITERAL = 3, TOPIC = 2, READ = 3, ALLOW = 3, ANY = 1, MATCH = 2;

async function main([address]) {
  const retry = { retries: 3, initialRetryTime: 100, maxRetryTime: 300 };
  const kafka = new Kafka({ clientId: "admin", brokers: [address], logLevel: logLevel.NOTHING, retry });
  const admin = kafka.admin();
  await admin.connect();
  const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

  async function call(name, ...given) {
    let told;
    try {
      const answer = await admin[name](...given);
      told = { answer: answer === undefined ? null : answer };
    } catch (error) {
      told = { error: error.name, type: error.type, message: error.message };
      if (error.errors) told.errors = error.errors.map((one) => [one.name, one.type, one.message]);
    }
    console.log(JSON.stringify({ call: name, given, ...told }));
    if (!/^(describe|fetch|list)/.test(name)) await pause(300); // what a controller did its broker learns a moment later
  }

  await call("createTopics", { topics: [{ topic: "t", numPartitions: 2 }, { topic: "gone" }], waitForLeaders: true });
  await call("createTopics", { topics: [{ topic: "t" }] });
  await call("createTopics", { topics: [{ topic: "bad name" }] });
  await call("createTopics", { topics: [{ topic: "x", replicationFactor: 3 }] });
  await call("createTopics", { topics: [{ topic: "x", configEntries: [{ name: "no.such", value: "1" }] }] });
  await call("createTopics", { topics: [{ topic: "unmade" }], validateOnly: true });
  await call("listTopics");
  await call("createPartitions", { topicPartitions: [{ topic: "t", count: 3 }] });
  await call("createPartitions", { topicPartitions: [{ topic: "t", count: 1 }] });
  await call("fetchTopicMetadata", { topics: ["t"] });
  await call("fetchTopicMetadata", { topics: ["absent"] });
  await call("deleteTopics", { topics: ["gone"] });
  await call("deleteTopics", { topics: ["absent"] });
  const producer = kafka.producer();
  await producer.connect();
  const messages = Array.from({ length: 10 }, (_, number) => ({ value: `v${number}`, partition: 0, timestamp: "1000" }));
  await producer.send({ topic: "t", messages });
  await producer.disconnect();
  await call("fetchTopicOffsets", "t");
  await call("fetchTopicOffsets", "absent");
  await call("fetchTopicOffsetsByTimestamp", "t", 500);
  await call("deleteTopicRecords", { topic: "t", partitions: [{ partition: 0, offset: "4" }] });
  await call("deleteTopicRecords", { topic: "t", partitions: [{ partition: 0, offset: "400" }] });
  await call("fetchTopicOffsets", "t");
  await call("describeCluster");
  const topic = { type: TOPIC, name: "t" };
  await call("alterConfigs", { resources: [{ ...topic, configEntries: [{ name: "retention.ms", value: "86400000" }] }] });
  await call("alterConfigs", { resources: [{ ...topic, configEntries: [{ name: "retention.ms", value: "soon" }] }] });
  await call("alterConfigs", { resources: [{ type: TOPIC, name: "absent", configEntries: [] }] });
  await call("describeConfigs", { resources: [{ ...topic, configNames: ["retention.ms", "cleanup.policy"] }], includeSynonyms: true });
  await call("describeConfigs", { resources: [{ type: TOPIC, name: "absent" }] });
  await call("setOffsets", { groupId: "g", topic: "t", partitions: [{ partition: 0, offset: "6" }] });
  await call("fetchOffsets", { groupId: "g", topics: ["t"] });
  await call("fetchOffsets", { groupId: "absent", topics: ["t"] });
  await call("resetOffsets", { groupId: "g", topic: "t", earliest: true });
  await call("fetchOffsets", { groupId: "g", topics: ["t"], resolveOffsets: true });
  await call("listGroups");
  await call("describeGroups", ["g", "absent"]);
  await call("deleteGroups", ["g"]);
  await call("deleteGroups", ["absent"]);
  const acl = { resourceType: TOPIC, resourceName: "t", resourcePatternType: LITERAL, principal: "User:a", host: "*" };
  await call("createAcls", { acl: [{ ...acl, operation: READ, permissionType: ALLOW }] });
  await call("createAcls", { acl: [{ ...acl, operation: ANY, permissionType: ALLOW }] });
  await call("createAcls", { acl: [{ ...acl, principal: "nobody", operation: READ, permissionType: ALLOW }] });
  const filter = { resourceType: TOPIC, resourcePatternType: MATCH, operation: ANY, permissionType: ANY };
  await call("describeAcls", { ...filter, resourceName: "t" });
  await call("describeAcls", { ...filter, resourceName: "absent" });
  await call("deleteAcls", { filters: [{ ...filter, resourceName: "t" }] });
  await call("alterPartitionReassignments", { topics: [{ topic: "t", partitionAssignment: [{ partition: 0, replicas: [1] }] }] });
  await call("alterPartitionReassignments", { topics: [{ topic: "t", partitionAssignment: [{ partition: 0, replicas: [9] }] }] });
  await call("alterPartitionReassignments", { topics: [{ topic: "absent", partitionAssignment: [{ partition: 0, replicas: [1] }] }] });
  await call("listPartitionReassignments", { topics: [{ topic: "t", partitions: [0] }] });
  await admin.disconnect();
  const named = ["connect", "disconnect", "on", "logger", "events"];
  const methods = Object.keys(admin).filter((name) => !named.includes(name)).sort();
  console.log(JSON.stringify({ methods }));
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
