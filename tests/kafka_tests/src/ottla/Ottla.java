package ottla;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import java.util.stream.Stream;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.metadata.bootstrap.BootstrapMetadata;
import org.apache.kafka.server.authorizer.AclCreateResult;
import org.apache.kafka.server.authorizer.AclDeleteResult;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.MetadataVersion;

/** An Ottla process with some nodes. */
public class Ottla {
    private static final long PATIENCE_MS = 90_000;
    private static final long RESTART_MS = 1_000;
    private static final Pattern PLACE = Pattern.compile("(node\\.\\d+\\.)?(process\\.roles|node\\.id|broker\\.id|listeners"
        + "|advertised\\.listeners|log\\.dirs?|metadata\\.log\\.dir|controller\\.listener\\.names|controller\\.quorum\\..+"
        + "|inter\\.broker\\.listener\\.name)");

    private final List<Integer> ids;
    private final List<String> disks;
    private final String listener;
    private final Properties configs = new Properties();
    private final Path home;
    private final List<String> listeners;
    private final Map<String, List<Integer>> ports = new HashMap<>();
    private final String own;
    private final List<Principals.Rule> principals;
    private final Logins logins;
    private final TreeSet<Integer> down = new TreeSet<>();
    private Process process;
    private String control;
    private Admin admin;

    /** Sets configs whose defaults differ from Kafka's: with several nodes new topics have up to three replicas, and client
     * metrics are off, which in Kafka depends on the metrics reporters. */
    public static void asKafka(Map<String, Object> configs) {
        configs.putIfAbsent("default.replication.factor", "1");
        if (String.valueOf(configs.get("metric.reporters")).contains("Telemetry"))
            configs.put("ottla.client.telemetry", "true");
    }

    /** Passes the levels of the features in a new cluster, and serves what is not stable, as Kafka's fixtures do. */
    public static void withFeatures(Map<String, Object> configs, BootstrapMetadata bootstrap) {
        configs.putIfAbsent("unstable.api.versions.enable", "true");
        configs.putIfAbsent("unstable.feature.versions.enable", "true");
        List<String> levels = new ArrayList<>();
        short level = bootstrap.featureLevel("metadata.version");
        if (level >= MetadataVersion.MINIMUM_VERSION.featureLevel())  // no new cluster has an older one
            levels.add("metadata.version=" + level);
        for (Feature feature : Feature.PRODUCTION_FEATURES)
            levels.add(feature.featureName() + "=" + bootstrap.featureLevel(feature.featureName()));
        configs.putIfAbsent("ottla.features", String.join(",", levels));
    }

    /** Returns the configs that all brokers have, with the same value. */
    public static Map<String, Object> common(Map<Integer, Map<String, Object>> ofBrokers) {
        Map<String, Object> found = null;
        for (Map<String, Object> configs : ofBrokers.values()) {
            if (found == null)
                found = new LinkedHashMap<>(configs);
            else
                found.entrySet().retainAll(configs.entrySet());
        }
        return found == null ? new LinkedHashMap<>() : found;
    }

    /** Returns the other configs of the brokers, under the names by which Ottla sets them for one node. */
    public static Map<String, Object> differing(Map<Integer, Map<String, Object>> ofBrokers) {
        Map<String, Object> common = common(ofBrokers);
        Map<String, Object> found = new LinkedHashMap<>();
        ofBrokers.forEach((id, configs) -> configs.forEach((name, value) -> {
            if (!common.containsKey(name))
                found.put("node." + id + "." + name, value);
        }));
        return found;
    }

    /** Removes the configs that name a node with its directories, listeners and controllers: Ottla gets them by flags. */
    public static void withoutPlaces(Map<String, Object> configs) {
        configs.keySet().removeIf(name -> PLACE.matcher(name).matches());
    }

    public Ottla(List<Integer> ids, List<String> disks, String listener, Map<String, ?> configs) {
        this(ids, disks, List.of(listener), configs, "PLAINTEXT");
    }

    /** The first of the listeners is that of the brokers. With a protocol other than PLAINTEXT, or with a principal builder
     * on a single listener, the nodes have one more listener, for what the fixture itself needs. */
    public Ottla(List<Integer> ids, List<String> disks, List<String> listeners, Map<String, ?> configs, String protocol) {
        boolean isSecured = !protocol.equals("PLAINTEXT");
        this.ids = List.copyOf(ids);
        this.disks = disks;
        this.listener = listeners.get(0);
        this.listeners = new ArrayList<>(listeners);
        try {
            this.home = Files.createTempDirectory("ottla-own-");
        } catch (IOException e) {
            throw new RuntimeException(e);
        }
        Map<String, Object> readable = new LinkedHashMap<>(configs);
        this.principals = Principals.built(readable, listeners, protocol);
        // Where the first of several listeners is that of the brokers, its users may do everything.
        boolean hasOwn = isSecured || (!principals.isEmpty() && listeners.size() == 1);
        this.own = hasOwn ? "OTTLA" : listener;
        String self = "User:ANONYMOUS";
        if (hasOwn && !principals.isEmpty()) {  // a builder may name others so
            principals.add(new Principals.Rule(own, self, "User:ottla-kafka-tests"));
            self = "User:ottla-kafka-tests";
        }
        this.logins = Logins.of(readable);
        Principals.withoutAuthorizer(readable);
        if (isSecured)
            Security.prepare(readable, listener, protocol, home);
        if (hasOwn) {
            this.listeners.add(own);
            if (readable.get("super.users") != null)
                readable.put("super.users", readable.get("super.users") + ";" + self);
        }
        readable.forEach((name, value) -> {
            if (value != null)
                this.configs.setProperty(name, String.valueOf(value));
        });
    }

    public List<Integer> ids() {
        return ids;
    }

    public synchronized boolean isRunning() {
        return process != null && process.isAlive();
    }

    public synchronized void start() {
        if (isRunning())
            return;
        if (process == null)
            Results.broker(true);
        try {
            Path file = home.resolve("server.properties");
            try (var out = Files.newBufferedWriter(file)) {
                configs.store(out, null);
            }
            List<String> command = new ArrayList<>(List.of(System.getProperty("ottla.command")));
            if (!principals.isEmpty() || logins != null) {
                Path rules = home.resolve("principals");
                Files.write(rules, principals.stream().map(Principals.Rule::line).toList());
                command = new ArrayList<>(List.of(System.getProperty("ottla.python"), System.getProperty("ottla.serve"),
                    rules.toString(), logins == null ? "" : String.valueOf(logins.port())));
            }
            command.addAll(List.of("serve",
                "--config", file.toString(), "--release", System.getProperty("ottla.release", "4.3"),
                "--control", "127.0.0.1:0", "--log-level", System.getProperty("ottla.log", "INFO")));
            for (String one : listeners)
                command.addAll(List.of("--listen", one + "=localhost:0"));
            for (File disk : dirs()) {
                command.add("--data-dir");
                command.add(disk.toString());
            }
            command.add("--node-ids");
            command.add(ids.stream().map(String::valueOf).collect(java.util.stream.Collectors.joining(",")));
            if (System.getProperty("ottla.record") != null) {
                command.add("--record");
                command.add(System.getProperty("ottla.record") + "-" + home.getFileName() + ".jsonl");
            }
            ProcessBuilder builder = new ProcessBuilder(command);
            File log = home.resolve("stderr").toFile();
            builder.redirectError(log);
            if (System.getProperty("java.security.krb5.conf") != null)
                builder.environment().put("KRB5_CONFIG", System.getProperty("java.security.krb5.conf"));
            process = builder.start();
            Runtime.getRuntime().addShutdownHook(new Thread(process::destroyForcibly));
            ports.clear();
            int ready = 0;
            control = null;
            var out = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
            String line;
            while (control == null && (line = out.readLine()) != null) {
                if (line.startsWith("ottla ready on "))
                    ports.computeIfAbsent(listeners.get(ready++ % listeners.size()), one -> new ArrayList<>())
                        .add(Integer.parseInt(line.substring(line.lastIndexOf(':') + 1)));
                else if (line.startsWith("ottla control on "))
                    control = line.substring("ottla control on ".length());
            }
            if (control == null) {
                process.waitFor();
                throw new DidNotStart(last(log.toPath()));
            }
        } catch (IOException | InterruptedException e) {
            throw new RuntimeException(e);
        }
    }

    private static String last(Path file) throws IOException {
        List<String> lines = Files.readAllLines(file);
        for (int i = lines.size() - 1; i >= 0; i--)
            if (lines.get(i).startsWith("ottla serve:"))
                return lines.get(i);
        return lines.isEmpty() ? "no output" : lines.get(lines.size() - 1);
    }

    public synchronized void stop() {
        if (admin != null)
            admin.close(java.time.Duration.ZERO);
        admin = null;
        if (process != null) {
            Results.broker(false);
            process.destroy();
            try {
                if (!process.waitFor(20, TimeUnit.SECONDS)) {
                    System.err.println("ottla: the broker still runs 20 s after SIGTERM");
                    process.destroyForcibly();
                }
            } catch (InterruptedException e) {
                process.destroyForcibly();
                Thread.currentThread().interrupt();
            }
            logErrors();
        }
        process = null;
        if (logins != null)
            logins.close();
        try (Stream<Path> all = Files.walk(home)) {
            all.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
        } catch (IOException e) {
            // The directory of a test is not needed any more.
        }
    }

    /** Copies errors and tracebacks of the broker to the log of the class. */
    private void logErrors() {
        try {
            String log = Files.readString(home.resolve("stderr"));
            if (log.contains("Traceback") || log.contains("[error") || log.contains("[critical"))
                System.err.println("ottla: log of the broker\n" + log.substring(0, Math.min(log.length(), 60_000)));
        } catch (IOException e) {
            // The broker wrote nothing.
        }
    }

    public synchronized int port(int node) {
        return ports.get(listener).get(ids.indexOf(node));
    }

    /** Returns the port of a listener: each one that Ottla does not have is the fixture's own. */
    public synchronized int port(int node, org.apache.kafka.common.network.ListenerName name) {
        return ports.getOrDefault(name.value(), ports.get(own)).get(ids.indexOf(node));
    }

    public synchronized String bootstrap() {
        return at(ports.get(listener));
    }

    private static String at(List<Integer> ports) {
        return String.join(",", ports.stream().map(port -> "localhost:" + port).toList());
    }

    public void withScramUser(String name, String password, byte mechanism) {
        var info = new org.apache.kafka.clients.admin.ScramCredentialInfo(
            org.apache.kafka.clients.admin.ScramMechanism.fromType(mechanism), 4096);
        try {
            admin().alterUserScramCredentials(List.of(
                new org.apache.kafka.clients.admin.UserScramCredentialUpsertion(name, info, password))).all().get();
        } catch (Exception e) {
            throw new RuntimeException(e);
        }
    }

    public synchronized void node(int node, boolean runs) {
        if (!isRunning()) {
            if (runs)
                start();
            return;
        }
        try {
            // Not java.net.http: its threads stay, and Kafka's fixture fails a test that leaves threads.
            var call = (java.net.HttpURLConnection) URI.create(control + "/v1/topology/nodes/" + node).toURL().openConnection();
            call.setRequestMethod("POST");
            call.setRequestProperty("Content-Type", "application/json");
            call.setRequestProperty("Accept", "application/json");
            call.setRequestProperty("Connection", "close");
            call.setDoOutput(true);
            call.getOutputStream().write(("{\"running\": " + runs + "}").getBytes(StandardCharsets.UTF_8));
            if (call.getResponseCode() < 300)
                call.getInputStream().readAllBytes();
            else if (runs || dirs().stream().anyMatch(File::exists))  // at its end the harness deletes them before
                throw new RuntimeException("control plane: " + new String(call.getErrorStream().readAllBytes()));
        } catch (IOException e) {
            throw new RuntimeException(e);
        }
        if (!runs) {
            down.add(node);
        } else if (down.remove(node)) {
            // A restart of Kafka takes a second or more, in which clients notice it and learn the new leader epochs.
            try {
                Thread.sleep(RESTART_MS);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }
    }

    public synchronized boolean runs(int node) {
        return isRunning() && !down.contains(node);
    }

    public synchronized Admin admin() {
        if (admin == null)
            admin = Admin.create(new HashMap<>(Map.of("bootstrap.servers", at(ports.get(own)), "client.id", "ottla-kafka-tests")));
        return admin;
    }

    public String clusterId() {
        try {
            return admin().describeCluster().clusterId().get();
        } catch (Exception e) {
            throw new RuntimeException(e);
        }
    }

    public Optional<TopicDescription> topic(String name) {
        try {
            return Optional.of(admin().describeTopics(List.of(name)).topicNameValues().get(name).get());
        } catch (Exception e) {
            if (e.getCause() instanceof UnknownTopicOrPartitionException)
                return Optional.empty();
            throw new RuntimeException(e);
        }
    }

    public java.util.Collection<AclBinding> acls(AclBindingFilter filter) {
        try {
            return admin().describeAcls(filter).values().get();
        } catch (Exception e) {
            throw new RuntimeException(e);
        }
    }

    /** Returns the configs that are set for a topic. */
    public Properties topicConfigs(String name) {
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, name);
        Properties found = new Properties();
        try {
            admin().describeConfigs(List.of(resource)).values().get(resource).get().entries().stream()
                .filter(one -> one.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG)
                .forEach(one -> found.put(one.name(), one.value()));
        } catch (Exception e) {
            throw new RuntimeException(e);
        }
        return found;
    }

    /** Begins a new segment of a partition of __consumer_offsets, with a commit of the fixture's own. */
    public void roll(TopicPartition partition) {
        if (!partition.topic().equals("__consumer_offsets"))
            throw new NeedsInternals("UnifiedLog.roll of " + partition);
        var topic = new ConfigResource(ConfigResource.Type.TOPIC, partition.topic());
        var broker = new ConfigResource(ConfigResource.Type.BROKER, "");
        try {
            alter(topic, "segment.ms", "1", AlterConfigOp.OpType.SET);
            alter(topic, "min.cleanable.dirty.ratio", "0", AlterConfigOp.OpType.SET);
            alter(broker, "log.cleaner.backoff.ms", "100", AlterConfigOp.OpType.SET);
            Thread.sleep(10);
            admin().alterConsumerGroupOffsets("ottla-kafka-tests", Map.of(partition, new OffsetAndMetadata(0))).all().get();
            alter(topic, "segment.ms", "", AlterConfigOp.OpType.DELETE);
        } catch (Exception e) {
            throw new RuntimeException(e);
        }
    }

    private void alter(ConfigResource resource, String name, String value, AlterConfigOp.OpType type) throws Exception {
        admin().incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(new ConfigEntry(name, value), type)))).all().get();
    }

    /** Waits until all segments of a partition but the newest are compacted: the checkpoint then has the newest one. */
    public boolean awaitCleaned(TopicPartition partition, long timeoutMs) throws Exception {
        long newest = Stream.of(dir(partition).listFiles((folder, name) -> name.endsWith(".log")))
            .mapToLong(file -> Long.parseLong(file.getName().substring(0, 20))).max().orElseThrow();
        String wanted = partition.topic() + " " + partition.partition() + " " + newest;
        for (long end = System.currentTimeMillis() + timeoutMs; System.currentTimeMillis() < end; Thread.sleep(50))
            for (File dir : dirs()) {
                File checkpoint = new File(dir, "cleaner-offset-checkpoint");
                if (checkpoint.exists() && Files.readAllLines(checkpoint.toPath()).contains(wanted))
                    return true;
            }
        return false;
    }

    /** Adds access control lists, with the results of an authorizer. */
    public List<CompletableFuture<AclCreateResult>> createAcls(List<AclBinding> acls) {
        try {
            admin().createAcls(acls).all().get();
        } catch (Exception e) {
            throw new RuntimeException(e);
        }
        return acls.stream().map(one -> CompletableFuture.completedFuture(AclCreateResult.SUCCESS)).toList();
    }

    /** Removes access control lists, with the results of an authorizer. */
    public List<CompletableFuture<AclDeleteResult>> deleteAcls(List<AclBindingFilter> filters) {
        List<CompletableFuture<AclDeleteResult>> found = new ArrayList<>();
        try {
            var deleted = admin().deleteAcls(filters).values();
            for (AclBindingFilter filter : filters)
                found.add(CompletableFuture.completedFuture(new AclDeleteResult(deleted.get(filter).get().values().stream()
                    .map(one -> new AclDeleteResult.AclBindingDeleteResult(one.binding(), one.exception())).toList())));
        } catch (Exception e) {
            throw new RuntimeException(e);
        }
        return found;
    }

    public long offset(TopicPartition partition, OffsetSpec which) {
        try {
            return admin().listOffsets(Map.of(partition, which)).partitionResult(partition).get().offset();
        } catch (Exception e) {
            throw new RuntimeException(e);
        }
    }

    public List<org.apache.kafka.clients.admin.ProducerState> producers(TopicPartition partition) {
        try {
            return admin().describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers();
        } catch (Exception e) {
            throw new RuntimeException(e);
        }
    }

    /** Returns the data directories. */
    public List<File> dirs() {
        return (disks.isEmpty() ? List.of(home.resolve("data").toString()) : disks).stream()
            .map(disk -> new File(disk).getAbsoluteFile()).toList();
    }

    /** Returns whether the brokers use a data directory. */
    public boolean online(String dir) {
        try {
            return admin().describeLogDirs(ids).allDescriptions().get().values().stream().allMatch(one ->
                one.containsKey(dir) && one.get(dir).error() == null);
        } catch (Exception e) {
            throw new RuntimeException(e);
        }
    }

    /** Returns the directory of a partition: the layout is Kafka's. */
    public File dir(TopicPartition partition) {
        for (File disk : dirs()) {
            File found = new File(disk, partition.toString());
            if (found.exists())
                return found;
        }
        throw new NeedsInternals("the directory of " + partition);
    }

    public int leaderEpoch(TopicPartition partition) {
        try {
            org.apache.kafka.common.requests.MetadataResponse answer = org.apache.kafka.server.IntegrationTestUtils.connectAndReceive(
                new org.apache.kafka.common.requests.MetadataRequest.Builder(List.of(partition.topic()), false).build(), ports.get(own).get(0));
            return answer.data().topics().find(partition.topic()).partitions().stream()
                .filter(one -> one.partitionIndex() == partition.partition()).findFirst().orElseThrow().leaderEpoch();
        } catch (IOException e) {
            throw new RuntimeException(e);
        }
    }

    public boolean serves(int api) {
        try (var socket = new java.net.Socket("localhost", ports.get(own).get(0))) {
            var out = new java.io.DataOutputStream(socket.getOutputStream());
            // ApiVersions v0, correlation 1, no client id.
            out.writeInt(10);
            out.writeShort(18);
            out.writeShort(0);
            out.writeInt(1);
            out.writeShort(-1);
            out.flush();
            var in = new java.io.DataInputStream(socket.getInputStream());
            in.readInt();
            in.readInt();
            in.readShort();
            int keys = in.readInt();
            for (int i = 0; i < keys; i++) {
                int key = in.readShort();
                in.readShort();
                in.readShort();
                if (key == api)
                    return true;
            }
            return false;
        } catch (IOException e) {
            throw new RuntimeException(e);
        }
    }

    /** Returns a counter of connections, without those of the fixture's own listener. */
    public synchronized double counter(String name) {
        String prefix = "kafka_server_socket_server_metrics_" + name.replace('-', '_') + "_total{";
        try (var in = URI.create(control + "/metrics").toURL().openStream()) {
            return new String(in.readAllBytes(), StandardCharsets.UTF_8).lines()
                .filter(line -> line.startsWith(prefix) && (own.equals(listener) || !line.contains("\"" + own + "\"")))
                .mapToDouble(line -> Double.parseDouble(line.substring(line.lastIndexOf(' ') + 1))).sum();
        } catch (IOException e) {
            throw new RuntimeException(e);
        }
    }

    public static void await(java.util.function.BooleanSupplier done, String what) throws InterruptedException {
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (!done.getAsBoolean()) {
            if (System.currentTimeMillis() > end)
                throw new AssertionError("not within " + PATIENCE_MS + " ms: " + what);
            Thread.sleep(100);
        }
    }
}
