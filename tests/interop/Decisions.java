// Apache Kafka's StandardAuthorizer, asked line by line: `new EVERYONE SUPER_USERS`, `acl TYPE NAME PATTERN PRINCIPAL HOST
// OPERATION PERMISSION`, `one PRINCIPAL HOST OPERATION TYPE NAME` and `any PRINCIPAL HOST OPERATION TYPE`, of which the
// last two answer true or false. Words are separated by tabs, codes are numbers.
import java.io.*;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.security.auth.*;
import org.apache.kafka.metadata.authorizer.*;
import org.apache.kafka.server.authorizer.*;

public class Decisions {
    record Asker(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "PLAINTEXT"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return ""; }
        public int correlationId() { return 0; }
    }

    static byte code(String text) { return Byte.parseByte(text); }

    public static void main(String[] arguments) throws Exception {
        StandardAuthorizer authorizer = null;
        Map<Uuid, StandardAcl> acls = new HashMap<>();
        boolean isLoaded = false;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        StringBuilder out = new StringBuilder();
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split("\t", -1);
            if (words[0].equals("new")) {
                authorizer = new StandardAuthorizer();
                for (Method method : StandardAuthorizer.class.getMethods()) {
                    if (method.getName().equals("withPluginMetrics")) { // from 4.1 on, which cannot do without
                        method.invoke(authorizer, Class.forName("org.apache.kafka.common.metrics.internals.PluginMetricsImpl")
                            .getConstructors()[0].newInstance(new Metrics(), Map.of()));
                    }
                }
                authorizer.configure(Map.of("allow.everyone.if.no.acl.found", words[1], "super.users", words[2]));
                acls.clear();
                isLoaded = false;
            } else if (words[0].equals("acl")) {
                acls.put(Uuid.randomUuid(), new StandardAcl(ResourceType.fromCode(code(words[1])), words[2],
                    PatternType.fromCode(code(words[3])), words[4], words[5], AclOperation.fromCode(code(words[6])),
                    AclPermissionType.fromCode(code(words[7]))));
            } else {
                if (!isLoaded) {
                    authorizer.loadSnapshot(acls);
                    authorizer.completeInitialLoad();
                    isLoaded = true;
                }
                int colon = words[1].indexOf(':');
                KafkaPrincipal principal = new KafkaPrincipal(words[1].substring(0, colon), words[1].substring(colon + 1));
                Asker asker = new Asker(principal, InetAddress.getByName(words[2]));
                AclOperation operation = AclOperation.fromCode(code(words[3]));
                ResourceType type = ResourceType.fromCode(code(words[4]));
                AuthorizationResult found;
                if (words[0].equals("any")) {
                    found = authorizer.authorizeByResourceType(asker, operation, type);
                } else {
                    ResourcePattern resource = new ResourcePattern(type, words[5], PatternType.LITERAL);
                    found = authorizer.authorize(asker, List.of(new Action(operation, resource, 1, false, false))).get(0);
                }
                out.append(found == AuthorizationResult.ALLOWED).append('\n');
            }
        }
        System.out.print(out);
    }
}
