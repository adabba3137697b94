package ottla;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.common.metadata.DelegationTokenRecord;
import org.apache.kafka.common.metadata.RemoveDelegationTokenRecord;
import org.apache.kafka.common.metadata.RemoveUserScramCredentialRecord;
import org.apache.kafka.common.metadata.UserScramCredentialRecord;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.security.scram.ScramCredential;
import org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCache;
import org.apache.kafka.metadata.DelegationTokenData;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.security.CredentialProvider;

/** What a broker in the JVM of a test knows from the metadata log: Ottla's has Kafka's records, which Kafka's code reads. */
public final class MetadataLog {
    private MetadataLog() {
    }

    private static List<ApiMessage> records(List<File> dirs) {
        List<ApiMessage> found = new ArrayList<>();
        for (File dir : dirs) {
            File[] files = new File(dir, "__cluster_metadata-0").listFiles((folder, name) -> name.endsWith(".log"));
            if (files == null)
                continue;
            Arrays.sort(files);
            for (File file : files)
                try (FileRecords records = FileRecords.open(file, false)) {
                    for (RecordBatch batch : records.batches())
                        if (!batch.isControlBatch())
                            for (Record record : batch)
                                found.add(new MetadataRecordSerde().read(new ByteBufferAccessor(record.value()), record.valueSize()).message());
                } catch (IOException e) {
                    throw new UncheckedIOException(e);
                }
        }
        return found;
    }

    /** Returns the delegation tokens and the SCRAM credentials. */
    public static CredentialProvider credentials(List<File> dirs) {
        List<String> mechanisms = List.of("SCRAM-SHA-256", "SCRAM-SHA-512");
        DelegationTokenCache tokens = new DelegationTokenCache(mechanisms);
        CredentialProvider found = new CredentialProvider(mechanisms, tokens);
        for (ApiMessage message : records(dirs)) {
            if (message instanceof DelegationTokenRecord token)
                tokens.addToken(token.tokenId(), DelegationTokenData.fromRecord(token).tokenInformation());
            else if (message instanceof RemoveDelegationTokenRecord token)
                tokens.removeToken(token.tokenId());
            else if (message instanceof UserScramCredentialRecord user)
                found.updateCredential(ScramMechanism.fromType(user.mechanism()), user.name(),
                    new ScramCredential(user.salt(), user.storedKey(), user.serverKey(), user.iterations()));
            else if (message instanceof RemoveUserScramCredentialRecord user)
                found.removeCredentials(ScramMechanism.fromType(user.mechanism()), user.name());
        }
        return found;
    }
}
