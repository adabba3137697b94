import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.errors.ApplicationRecoverableException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.RefreshRetriableException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.TransactionAbortableException;
import org.apache.kafka.common.protocol.Errors;

/**
 * Prints error_kinds.json: the kind of each error code, from the exception classes on the class path (KIP-1050).
 *
 *     java -cp kafka-clients-4.4.0.jar:slf4j-api.jar ErrorKinds.java > error_kinds.json
 */
public class ErrorKinds {
    public static void main(String[] arguments) {
        List<String> lines = new ArrayList<>();
        for (Errors error : Errors.values()) {
            if (error.exception() != null) lines.add(" \"" + error.name() + "\": \"" + kind(error.exception()) + "\"");
        }
        System.out.println("{\n" + String.join(",\n", lines) + "\n}");
    }

    static String kind(Exception error) {
        if (error instanceof RefreshRetriableException) return "refresh retriable";
        if (error instanceof RetriableException) return "retriable";
        if (error instanceof TransactionAbortableException) return "abortable";
        if (error instanceof ApplicationRecoverableException) return "application recoverable";
        if (error instanceof InvalidConfigurationException) return "invalid configuration";
        return "other";
    }
}
