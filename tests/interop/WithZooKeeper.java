import java.nio.file.Path;
import org.apache.zookeeper.server.ServerCnxnFactory;
import org.apache.zookeeper.server.ZooKeeperServer;

/** A ZooKeeper and a Kafka of before KRaft in one process: the port of the first, its folder, Kafka's properties. */
public class WithZooKeeper {
    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[1]);
        ZooKeeperServer keeper = new ZooKeeperServer(folder.toFile(), folder.toFile(), 2000);
        ServerCnxnFactory door =
                ServerCnxnFactory.createFactory(new java.net.InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])), 20);
        door.startup(keeper);
        Class.forName("kafka.Kafka").getMethod("main", String[].class).invoke(null, (Object) new String[] {arguments[2]});
    }
}
