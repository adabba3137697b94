package ottla;

import java.io.DataInputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.List;
import java.util.Map;

import javax.security.auth.callback.Callback;
import javax.security.auth.callback.NameCallback;

import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.plain.PlainAuthenticateCallback;

/**
 * The callback handler of a test that decides on logins with PLAIN, which is a plug-in in Java. `serve.py` connects here for each
 * login, and sends the user and the password, each as the JVM writes text; it gets one byte, 1 if the handler accepts them.
 */
final class Logins {
    private static final String CONFIG = ".plain.sasl.server.callback.handler.class";

    private final AuthenticateCallbackHandler handler;
    private final ServerSocket socket;

    private Logins(AuthenticateCallbackHandler handler) throws IOException {
        this.handler = handler;
        this.socket = new ServerSocket(0, 0, InetAddress.getLoopbackAddress());
        Thread thread = new Thread(this::serve, "ottla-logins");
        thread.setDaemon(true);
        thread.start();
    }

    /** Removes the handler from the configs and serves it; null if there is none. */
    static Logins of(Map<String, Object> configs) {
        Object name = null;
        for (String config : List.copyOf(configs.keySet()))
            if (config.endsWith(CONFIG))
                name = configs.remove(config);
        if (name == null)
            return null;
        try {
            Class<?> type = name instanceof Class<?> known ? known : Class.forName(String.valueOf(name));
            return new Logins((AuthenticateCallbackHandler) type.getDeclaredConstructor().newInstance());
        } catch (ReflectiveOperationException | IOException e) {
            throw new DidNotStart(CONFIG + ": " + e);
        }
    }

    int port() {
        return socket.getLocalPort();
    }

    void close() {
        try {
            socket.close();
        } catch (IOException e) {
            // It is closed.
        }
    }

    private void serve() {
        while (!socket.isClosed()) {
            try (Socket one = socket.accept()) {
                DataInputStream in = new DataInputStream(one.getInputStream());
                one.getOutputStream().write(accepts(in.readUTF(), in.readUTF()) ? 1 : 0);
            } catch (IOException e) {
                // The test has ended, or the broker.
            }
        }
    }

    private boolean accepts(String user, String password) {
        var login = new PlainAuthenticateCallback(password.toCharArray());
        try {
            handler.handle(new Callback[] {new NameCallback("user", user), login});
        } catch (Exception e) {
            return false;  // Kafka refuses the login.
        }
        return login.authenticated();
    }
}
