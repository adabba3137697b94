import java.nio.file.Path;
import org.apache.zookeeper.server.ServerConfig;
import org.apache.zookeeper.server.ZooKeeperServerMain;

/** ZooKeeper and one Kafka broker of the releases that have both, in one process: DIR, ZooKeeper's port, a properties file. */
public class Server {
    public static void main(String[] arguments) throws Exception {
        ServerConfig config = new ServerConfig();
        config.parse(new String[] {arguments[1], Path.of(arguments[0], "zookeeper").toString()});
        Thread keeper = new Thread(() -> {
            try {
                new ZooKeeperServerMain().runFromConfig(config);
            } catch (Exception e) {
                e.printStackTrace();
            }
        });
        keeper.setDaemon(true);
        keeper.start();
        kafka.Kafka.main(new String[] {arguments[2]});
    }
}
