import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.testcontainers.containers.Network;
import org.testcontainers.kafka.KafkaContainer;
import org.testcontainers.utility.DockerImageName;

/** Testcontainers' own KafkaContainer on an image that stands in for apache/kafka, with a listener of its own more. */
public class JavaModule {
    public static void main(String[] arguments) throws Exception {
        DockerImageName image = DockerImageName.parse(arguments[0]).asCompatibleSubstituteFor("apache/kafka");
        long begun = System.nanoTime();
        try (Network network = Network.newNetwork();
                KafkaContainer kafka = new KafkaContainer(image).withNetwork(network).withListener("kafka:19092")) {
            kafka.start();
            long seconds = (System.nanoTime() - begun) / 1_000_000;
            Map<String, Object> common = Map.of("bootstrap.servers", kafka.getBootstrapServers());
            try (var producer = new KafkaProducer<>(common, new StringSerializer(), new StringSerializer())) {
                producer.send(new ProducerRecord<>("test-topic", "verification message")).get();
            }
            Map<String, Object> reading = Map.of(
                "bootstrap.servers", kafka.getBootstrapServers(), "group.id", "g", "auto.offset.reset", "earliest");
            try (var consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer())) {
                consumer.subscribe(List.of("test-topic"));
                int found = 0;
                long until = System.currentTimeMillis() + 20_000;
                while (found == 0 && System.currentTimeMillis() < until) {
                    found += consumer.poll(Duration.ofMillis(200)).count();
                }
                if (found != 1) throw new IllegalStateException(found + " records");
            }
            var listed = kafka.execInContainer(
                "/opt/kafka/bin/kafka-topics.sh", "--bootstrap-server", "kafka:19092", "--list");
            if (!listed.getStdout().contains("test-topic")) throw new IllegalStateException(listed.toString());
            System.out.println("KafkaContainer with a listener more, in " + seconds + " ms");
        }
        System.exit(0);
    }
}
