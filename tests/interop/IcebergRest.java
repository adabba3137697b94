import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.iceberg.Table;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

/** Apache Iceberg's REST catalog of its own tests, over a database in FOLDER and files there, or in WAREHOUSE at the
 * object store ENDPOINT. Prints its port; for each table named on stdin its rows, as a line "partition offset date value note" each, in order, and "end" with the number of snapshots. */
public class IcebergRest {
    private static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));

    public static void main(String[] arguments) throws Exception {
        Map<String, String> properties = new HashMap<>(Map.of(
            "uri", "jdbc:sqlite:" + arguments[0] + "/catalog.db",
            "warehouse", "file://" + arguments[0] + "/warehouse",
            "io-impl", "org.apache.iceberg.hadoop.HadoopFileIO"));
        if (arguments.length > 1) {
            properties.putAll(Map.of(
                "warehouse", arguments[1],
                "io-impl", "org.apache.iceberg.aws.s3.S3FileIO",
                "s3.endpoint", arguments[2],
                "s3.path-style-access", "true",
                "client.region", "us-east-1"));
        }
        JdbcCatalog catalog = new JdbcCatalog();
        catalog.initialize("rest", properties);
        ServletContextHandler context = new ServletContextHandler(ServletContextHandler.NO_SESSIONS);
        context.setContextPath("/");
        context.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
        Server server = new Server(0);
        server.setHandler(context);
        server.start();
        System.out.println(((ServerConnector) server.getConnectors()[0]).getLocalPort());
        for (String name; (name = INPUT.readLine()) != null; ) {
            Table table = catalog.loadTable(TableIdentifier.parse(name));
            TreeMap<String, String> rows = new TreeMap<>();
            try (CloseableIterable<Record> found = IcebergGenerics.read(table).build()) {
                for (Record row : found) {
                    Record decoded = (Record) row.getField("decoded");
                    ByteBuffer value = (ByteBuffer) row.getField("value");
                    String key = String.format("%d %06d", row.getField("partition"), row.getField("offset"));
                    Object note = decoded == null ? null : decoded.getField("note");
                    rows.put(key, row.getField("date") + " " + new String(value.array()) + " " + note);
                }
            }
            rows.forEach((key, row) -> System.out.println(key + " " + row));
            int snapshots = 0;
            for (Object one : table.snapshots()) snapshots++;
            System.out.println("end " + snapshots);
        }
        server.stop();
    }
}
