package ottla;

import java.io.File;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.nio.file.Path;
import java.security.Key;
import java.security.KeyStore;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.Configuration;

import org.apache.kafka.common.config.types.Password;

/** What a broker in the JVM of a test reads from it: passwords, stores in Java's own format, the login configuration. */
public final class Security {
    private static final Map<String, String> MODULES = Map.of(
        "PLAIN", "PlainLoginModule", "SCRAM-SHA-256", "ScramLoginModule", "SCRAM-SHA-512", "ScramLoginModule",
        "OAUTHBEARER", "OAuthBearerLoginModule", "GSSAPI", "Krb5LoginModule");

    private Security() {
    }

    /** Makes the configs of a broker ones that another process can read. */
    public static void prepare(Map<String, Object> configs, String listener, String protocol, Path folder) {
        configs.replaceAll((name, value) -> value instanceof Password password ? password.value()
            : value instanceof List<?> list ? String.join(",", list.stream().map(String::valueOf).toList()) : value);
        for (String name : List.copyOf(configs.keySet()))
            for (String kind : List.of("ssl.keystore.", "ssl.truststore."))
                if (name.endsWith(kind + "location") && configs.get(name) != null)
                    convert(configs, name.substring(0, name.length() - kind.length() - 8), kind, folder);
        Object mechanisms = configs.getOrDefault("sasl.enabled.mechanisms", "GSSAPI");
        if (protocol.startsWith("SASL"))
            for (String mechanism : String.valueOf(mechanisms).split(","))
                withLogin(configs, listener, mechanism.trim());
    }

    private static Object of(Map<String, Object> configs, String prefix, String name, Object otherwise) {
        Object found = configs.get(prefix + name);
        return found != null ? found : configs.getOrDefault(name, otherwise);
    }

    /** Writes a store as PKCS12. */
    private static void convert(Map<String, Object> configs, String prefix, String kind, Path folder) {
        String type = String.valueOf(of(configs, prefix, kind + "type", "JKS"));
        if (type.equals("PEM"))
            return;
        Object password = of(configs, prefix, kind + "password", null);
        char[] secret = password == null ? null : String.valueOf(password).toCharArray();
        Object keyPassword = of(configs, prefix, "ssl.key.password", password);
        try {
            KeyStore read = KeyStore.getInstance(type);
            try (var in = new FileInputStream(String.valueOf(configs.get(prefix + kind + "location")))) {
                read.load(in, secret);
            }
            KeyStore made = KeyStore.getInstance("PKCS12");
            made.load(null, null);
            for (String alias : Collections.list(read.aliases())) {
                if (read.isKeyEntry(alias)) {
                    Key key = read.getKey(alias, String.valueOf(keyPassword).toCharArray());
                    made.setKeyEntry(alias, key, secret, read.getCertificateChain(alias));
                } else {
                    made.setCertificateEntry(alias, read.getCertificate(alias));
                }
            }
            File file = File.createTempFile("store", ".p12", folder.toFile());
            try (var out = new FileOutputStream(file)) {
                made.store(out, secret == null ? "changeit".toCharArray() : secret);
            }
            configs.put(prefix + kind + "location", file.toString());
            configs.put(prefix + kind + "type", "PKCS12");
            configs.put(prefix + kind + "password", secret == null ? "changeit" : new String(secret));
        } catch (Exception e) {
            throw new DidNotStart("a store of the test: " + e);
        }
    }

    /** Passes the login module of a mechanism that the test has put into the login configuration of the JVM. */
    private static void withLogin(Map<String, Object> configs, String listener, String mechanism) {
        String name = "listener.name." + listener.toLowerCase(Locale.ROOT) + "." + mechanism.toLowerCase(Locale.ROOT) + ".sasl.jaas.config";
        if (configs.get(name) != null || System.getProperty("java.security.auth.login.config") == null)
            return;
        Configuration.getConfiguration().refresh();
        for (String section : List.of(listener.toLowerCase(Locale.ROOT) + ".KafkaServer", "KafkaServer")) {
            AppConfigurationEntry[] entries = Configuration.getConfiguration().getAppConfigurationEntry(section);
            for (AppConfigurationEntry entry : entries == null ? new AppConfigurationEntry[0] : entries)
                if (entry.getLoginModuleName().endsWith("." + MODULES.get(mechanism))) {
                    Map<String, Object> options = new LinkedHashMap<>(entry.getOptions());
                    StringBuilder text = new StringBuilder(entry.getLoginModuleName()).append(" required");
                    options.forEach((key, value) -> text.append(' ').append(key).append("=\"")
                        .append(String.valueOf(value).replace("\\", "\\\\").replace("\"", "\\\"")).append('"'));
                    configs.put(name, text.append(';').toString());
                    return;
                }
        }
    }
}
