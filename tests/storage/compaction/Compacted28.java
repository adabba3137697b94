// What the cleaner of Kafka 2.8.2 makes of a partition's folder, pass by pass, each dirty from where the last one ended.
// Usage: Compacted28 FOLDER SEGMENT_BYTES DELETE_RETENTION_MS PASS..., a pass being NOW_MS:END.
// Prints a line for each pass: its end, then BASE:MODIFIED_MS:LOG_HEX:TXNINDEX_HEX of each segment below END.
import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.Properties;
import java.util.function.Supplier;
import kafka.log.Cleaner;
import kafka.log.LogToClean;
import kafka.log.Log;
import kafka.log.LogConfig;
import kafka.log.LogSegment;
import kafka.log.SkimpyOffsetMap;
import kafka.server.BrokerTopicStats;
import kafka.server.LogDirFailureChannel;
import kafka.utils.KafkaScheduler;
import kafka.utils.Throttler;
import org.apache.kafka.common.utils.Time;
import scala.jdk.javaapi.CollectionConverters;

public class Compacted28 {
    static final Time FIXED = new Time() {
        public long milliseconds() { return 10_000; }
        public long nanoseconds() { return 10_000_000_000L; }
        public void sleep(long ms) { }
        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) { }
    };

    static String hex(Path path) throws Exception {
        return Files.exists(path) ? HexFormat.of().formatHex(Files.readAllBytes(path)) : "";
    }

    public static void main(String[] arguments) throws Exception {
        File folder = new File(arguments[0]);
        Properties config = new Properties();
        config.put("cleanup.policy", "compact");
        config.put("segment.bytes", arguments[1]);
        config.put("delete.retention.ms", arguments[2]);
        KafkaScheduler scheduler = new KafkaScheduler(1, "cleaning", true);
        scheduler.startup();
        LogConfig settings = new LogConfig(config, scala.collection.immutable.Set$.MODULE$.<String>empty());
        Log log = Log.apply(folder, settings, 0, 0, scheduler, new BrokerTopicStats(), FIXED, 1 << 30, 1 << 30,
            new LogDirFailureChannel(1), false, true);
        long dirty = 0;
        for (int number = 3; number < arguments.length; number++) {
            String[] pass = arguments[number].split(":");
            Throttler throttler = new Throttler(Double.MAX_VALUE, 300, true, "a", "b", FIXED);
            Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(1 << 16, "MD5"), 1 << 16, 1 << 20, 0.9,
                throttler, FIXED, partition -> scala.runtime.BoxedUnit.UNIT);
            long end = Long.parseLong(pass[1]);
            LogToClean task = new LogToClean(log.topicPartition(), log, dirty, end, false);
            dirty = (Long) cleaner.clean(task)._1();
            StringBuilder line = new StringBuilder().append(dirty);
            for (LogSegment segment : CollectionConverters.asJava(log.logSegments())) {
                if (segment.baseOffset() < end) {
                    String stem = String.format("%020d", segment.baseOffset());
                    line.append(' ').append(segment.baseOffset()).append(':').append(segment.lastModified()).append(':')
                        .append(hex(folder.toPath().resolve(stem + ".log"))).append(':')
                        .append(hex(folder.toPath().resolve(stem + ".txnindex")));
                }
            }
            System.out.println(line);
        }
        System.exit(0);
    }
}
