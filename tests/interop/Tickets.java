import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;

/**
 * Writes and reads a record with the client of Kafka 0.9, which logs in with GSSAPI and knows no SaslHandshake.
 *
 * Arguments: an address and a topic. The login is that of the system property java.security.auth.login.config.
 */
public class Tickets {
    public static void main(String[] arguments) throws Exception {
        Properties p = new Properties();
        p.put("bootstrap.servers", arguments[0]);
        p.put("security.protocol", "SASL_PLAINTEXT");
        p.put("sasl.kerberos.service.name", "kafka");
        p.put("max.block.ms", "20000");
        String topic = arguments[1];
        try (Producer<String, String> producer = new KafkaProducer<>(p, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(topic, topic)).get();
        }
        p.put("group.id", topic);
        p.put("auto.offset.reset", "earliest");
        try (Consumer<String, String> consumer = new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(Collections.singletonList(topic));
            long deadline = System.currentTimeMillis() + 20_000;
            while (System.currentTimeMillis() < deadline)
                for (ConsumerRecord<String, String> record : consumer.poll(200))
                    if (record.value().equals(topic)) {
                        System.out.println("ok");
                        return;
                    }
            throw new IllegalStateException("the record did not come");
        }
    }
}
