package ottla;

import java.net.InetAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;

import javax.net.ssl.SSLSession;
import javax.security.auth.x500.X500Principal;
import javax.security.sasl.SaslServer;

import kafka.security.JaasTestUtils;

import org.apache.kafka.common.security.auth.AuthenticationContext;
import org.apache.kafka.common.security.auth.KafkaPrincipalBuilder;
import org.apache.kafka.common.security.auth.PlaintextAuthenticationContext;
import org.apache.kafka.common.security.auth.SaslAuthenticationContext;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.security.auth.SslAuthenticationContext;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;

import org.mockito.Mockito;

/**
 * The principals that a test's own principal builder makes, which is a plug-in in Java. It is called here for the users
 * and the certificates of Kafka's fixtures; `serve.py` gives these principals to the connections of the broker.
 */
final class Principals {
    private static final List<String> USERS = List.of(JaasTestUtils.KAFKA_SCRAM_USER, JaasTestUtils.KAFKA_SCRAM_USER_2,
        JaasTestUtils.KAFKA_SCRAM_ADMIN, JaasTestUtils.KAFKA_PLAIN_USER, JaasTestUtils.KAFKA_PLAIN_USER_2,
        JaasTestUtils.KAFKA_PLAIN_ADMIN);
    private static final List<String> SUBJECTS = List.of("O=A server,CN=localhost", "O=A client,CN=localhost",
        "O=A client,CN=client", "O=A client,CN=super-user");

    /** On a listener the principal `known` of Ottla is `built`. */
    record Rule(String listener, String known, String built) {
        String line() {
            return String.join("\t", listener, known, built);
        }
    }

    private Principals() {
    }

    /** Removes the builders from the configs and returns what they make on each listener. */
    static List<Rule> built(Map<String, Object> configs, List<String> listeners, String protocol) {
        List<Rule> rules = new ArrayList<>();
        for (String listener : listeners) {
            String prefix = "listener.name." + listener.toLowerCase(Locale.ROOT) + ".";
            Object name = configs.getOrDefault(prefix + "principal.builder.class", configs.get("principal.builder.class"));
            if (name == null)
                continue;
            try {
                Class<?> type = name instanceof Class<?> known ? known : Class.forName(String.valueOf(name));
                var builder = (KafkaPrincipalBuilder) type.getDeclaredConstructor().newInstance();
                switch (protocol) {
                    case "PLAINTEXT":
                        add(rules, builder, listener, "ANONYMOUS",
                            new PlaintextAuthenticationContext(InetAddress.getLoopbackAddress(), listener));
                        break;
                    case "SSL":
                        for (String subject : SUBJECTS)
                            add(rules, builder, listener, subject, ssl(subject, listener));
                        break;
                    default:
                        for (String user : USERS)
                            add(rules, builder, listener, user, sasl(user, listener, SecurityProtocol.forName(protocol)));
                }
            } catch (ReflectiveOperationException e) {
                throw new DidNotStart("principal.builder.class: " + e);
            }
        }
        configs.keySet().removeIf(name -> name.endsWith("principal.builder.class"));
        return rules;
    }

    /** Puts Kafka's own authorizer in place of one that decides as it does, and only observes. */
    static void withoutAuthorizer(Map<String, Object> configs) {
        Object name = configs.get("authorizer.class.name");
        try {
            if (name != null && Class.forName(String.valueOf(name)).getMethod("authorize", AuthorizableRequestContext.class, List.class)
                    .getDeclaringClass() == StandardAuthorizer.class)
                configs.put("authorizer.class.name", StandardAuthorizer.class.getName());
        } catch (ReflectiveOperationException e) {
            // Ottla refuses the name.
        }
    }

    private static void add(List<Rule> rules, KafkaPrincipalBuilder builder, String listener, String name,
            AuthenticationContext context) {
        String built = builder.build(context).toString();
        if (!built.equals("User:" + name))
            rules.add(new Rule(listener, "User:" + name, built));
    }

    private static SSLSession session(String subject) {
        SSLSession session = Mockito.mock(SSLSession.class);
        try {
            Mockito.when(session.getPeerPrincipal()).thenReturn(new X500Principal(subject));
        } catch (javax.net.ssl.SSLPeerUnverifiedException e) {
            throw new IllegalStateException(e);
        }
        return session;
    }

    private static AuthenticationContext ssl(String subject, String listener) {
        return new SslAuthenticationContext(session(subject), InetAddress.getLoopbackAddress(), listener);
    }

    private static AuthenticationContext sasl(String user, String listener, SecurityProtocol protocol) {
        SaslServer server = Mockito.mock(SaslServer.class);
        Mockito.when(server.getAuthorizationID()).thenReturn(user);
        Optional<SSLSession> session = protocol == SecurityProtocol.SASL_SSL ? Optional.of(session(SUBJECTS.get(1))) : Optional.empty();
        return new SaslAuthenticationContext(server, protocol, InetAddress.getLoopbackAddress(), listener, session);
    }
}
