import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.*;

/**
 * A word count of Kafka Streams, exactly once: each word that comes in goes out with how often it came so far.
 *
 * Arguments: bootstrap servers, the folder of its state, the group protocol. Reads the topic lines, writes counts; ends when it is killed.
 */
public class WordCount {
    public static void main(String[] args) throws Exception {
        Properties p = new Properties();
        p.put("application.id", "words");
        p.put("bootstrap.servers", args[0]);
        p.put("state.dir", args[1]);
        p.put("processing.guarantee", "exactly_once_v2");
        p.put("num.stream.threads", "2");
        p.put("commit.interval.ms", "100");
        p.put("statestore.cache.max.bytes", "0"); // so that each count is seen
        p.put("topology.optimization", "none");
        p.put("consumer.auto.offset.reset", "earliest");
        if (args[2].equals("classic")) {
            p.put("consumer.session.timeout.ms", "2000");
            p.put("consumer.heartbeat.interval.ms", "500");
        } else { // the broker has the timeouts
            p.put("group.protocol", args[2]);
        }
        p.put("consumer.max.poll.records", "50");
        p.put("producer.transaction.timeout.ms", "3000");
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream("lines", Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count()
            .toStream()
            .mapValues(String::valueOf)
            .to("counts", Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), p);
        streams.setUncaughtExceptionHandler(thrown -> {
            thrown.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.setStateListener((now, before) -> System.out.println(before + " -> " + now));
        streams.start();
        Thread.sleep(Long.MAX_VALUE);
    }
}
