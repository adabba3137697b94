import java.lang.reflect.Method;
import java.util.*;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;

/**
 * Where Apache's own producer puts keys: COUNT,COUNT,... KEY... (keys are x and hex digits), a line of partitions for each key.
 *
 * From 3.3 on the producer asks BuiltInPartitioner, before it asked DefaultPartitioner.
 */
public class Partitions {
    static final Map<Integer, Cluster> CLUSTERS = new HashMap<>();

    static byte[] bytes(String hex) {
        byte[] out = new byte[hex.length() / 2];
        for (int i = 0; i < out.length; i++) out[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
        return out;
    }

    static Cluster cluster(int count) {
        Node node = new Node(1, "localhost", 9092);
        List<PartitionInfo> partitions = new ArrayList<>();
        for (int i = 0; i < count; i++)
            partitions.add(new PartitionInfo("t", i, node, new Node[] {node}, new Node[] {node}));
        return new Cluster("c", List.of(node), partitions, Set.of(), Set.of());
    }

    static int partition(byte[] key, int count) throws Exception {
        try {
            Class<?> builtIn = Class.forName("org.apache.kafka.clients.producer.internals.BuiltInPartitioner");
            return (int) builtIn.getMethod("partitionForKey", byte[].class, int.class).invoke(null, key, count);
        } catch (ClassNotFoundException before) {
            Class<?> old = Class.forName("org.apache.kafka.clients.producer.internals.DefaultPartitioner");
            Object made = old.getConstructor().newInstance();
            for (Method method : old.getMethods())
                if (method.getName().equals("partition") && method.getParameterCount() == 6)
                    return (int) method.invoke(made, "t", key, key, null, null, CLUSTERS.computeIfAbsent(count, Partitions::cluster));
            throw before;
        }
    }

    public static void main(String[] arguments) throws Exception {
        int[] counts = Arrays.stream(arguments[0].split(",")).mapToInt(Integer::parseInt).toArray();
        for (String key : Arrays.asList(arguments).subList(1, arguments.length)) {
            StringJoiner line = new StringJoiner(" ");
            for (int count : counts) line.add(String.valueOf(partition(bytes(key.substring(1)), count)));
            System.out.println(line);
        }
    }
}
