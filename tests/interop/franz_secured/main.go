// Logs in to a broker in several ways with franz-go, each with records that are written and read.
//
// Arguments: a file in PEM with what is trusted, one with a key and its certificate, how many records each way writes, one
// in a millisecond, or one record without this; and how many milliseconds a transaction lasts: one that is committed and one
// that is aborted, in place of the records. A line of the standard input is one way: name, address, security protocol,
// mechanism, user, password or token, separated by tabs; with GSSAPI the password is a keytab, and the name of the service
// follows. Prints a line for each.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/kerberos"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func options(way []string, trusted *x509.CertPool, own tls.Certificate, retried bool) []kgo.Opt {
	found := []kgo.Opt{kgo.SeedBrokers(way[1]), kgo.AllowAutoTopicCreation()}
	if !retried {
		found = append(found, kgo.RequestRetries(0))
	}
	if strings.HasSuffix(way[2], "SSL") {
		config := &tls.Config{RootCAs: trusted}
		if way[2] == "SSL" {
			config.Certificates = []tls.Certificate{own}
		}
		found = append(found, kgo.DialTLSConfig(config))
	}
	if strings.HasPrefix(way[2], "SASL") {
		login := scram.Auth{User: way[4], Pass: way[5]}
		switch way[3] {
		case "PLAIN":
			found = append(found, kgo.SASL(plain.Auth{User: way[4], Pass: way[5]}.AsMechanism()))
		case "SCRAM-SHA-256":
			found = append(found, kgo.SASL(login.AsSha256Mechanism()))
		case "SCRAM-SHA-512":
			found = append(found, kgo.SASL(login.AsSha512Mechanism()))
		case "OAUTHBEARER":
			found = append(found, kgo.SASL(oauth.Auth{Token: way[5]}.AsMechanism()))
		case "GSSAPI":
			found = append(found, kgo.SASL(ticket(way[4], way[5], way[6]).AsMechanism()))
		}
	}
	return found
}

func ticket(user, file, service string) kerberos.Auth {
	settings, err := config.Load(os.Getenv("KRB5_CONFIG"))
	if err != nil {
		fail(err)
	}
	keys, err := keytab.Load(file)
	if err != nil {
		fail(err)
	}
	login := client.NewWithKeytab(user, settings.LibDefaults.DefaultRealm, keys, settings, client.DisablePAFXFAST(true))
	return kerberos.Auth{Client: login, Service: service, PersistAfterAuth: true}
}

func sendAndRead(way []string, common []kgo.Opt, records int) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience(records))
	defer cancel()
	more := []kgo.Opt{kgo.ConsumerGroup(way[0]), kgo.ConsumeTopics(way[0]), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
	client, err := kgo.NewClient(append(common, more...)...)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	missing := map[string]bool{}
	sent := kgo.AbortingFirstErrPromise(client)
	for i := 0; i < records; i++ {
		value := way[0] + strconv.Itoa(i)
		missing[value] = true
		client.Produce(ctx, &kgo.Record{Topic: way[0], Value: []byte(value)}, sent.Promise())
		if records > 1 {
			time.Sleep(time.Millisecond)
		}
	}
	if err := sent.Err(); err != nil {
		return err
	}
	return read(ctx, client, missing)
}

func patience(records int) time.Duration {
	if records > 1 {
		return time.Minute
	}
	return 20 * time.Second
}

func read(ctx context.Context, client *kgo.Client, missing map[string]bool) error {
	aborted := false
	for {
		fetches := client.PollFetches(ctx)
		fetches.EachRecord(func(record *kgo.Record) {
			aborted = aborted || strings.HasPrefix(string(record.Value), "aborted")
			delete(missing, string(record.Value))
		})
		if aborted {
			return errors.New("an aborted record")
		}
		if len(missing) == 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%d records did not come: %w", len(missing), err)
		}
	}
}

func transact(way []string, common []kgo.Opt, millis int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	producer, err := kgo.NewClient(append(common, kgo.TransactionalID(way[0]))...)
	if err != nil {
		return err
	}
	defer producer.Close()
	missing := map[string]bool{}
	for _, kind := range []string{"aborted", "committed"} {
		if err := producer.BeginTransaction(); err != nil {
			return err
		}
		end := time.Now().Add(time.Duration(millis) * time.Millisecond)
		for i := 0; time.Now().Before(end); i++ {
			value := kind + strconv.Itoa(i)
			if kind == "committed" {
				missing[value] = true
			}
			sent := producer.ProduceSync(ctx, &kgo.Record{Topic: way[0], Value: []byte(value)})
			if err := sent.FirstErr(); err != nil {
				return err
			}
			time.Sleep(20 * time.Millisecond)
		}
		if err := producer.EndTransaction(ctx, kgo.TransactionEndTry(kind == "committed")); err != nil {
			return err
		}
	}
	more := []kgo.Opt{kgo.ConsumeTopics(way[0]), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
	consumer, err := kgo.NewClient(append(append(common, more...), kgo.FetchIsolationLevel(kgo.ReadCommitted()))...)
	if err != nil {
		return err
	}
	defer consumer.Close()
	return read(ctx, consumer, missing)
}

func main() {
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		fail(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(text)
	own, err := tls.LoadX509KeyPair(os.Args[2], os.Args[2])
	if err != nil {
		fail(err)
	}
	records := 1
	if len(os.Args) > 3 {
		if records, err = strconv.Atoi(os.Args[3]); err != nil {
			fail(err)
		}
	}
	millis := 0
	if len(os.Args) > 4 {
		if millis, err = strconv.Atoi(os.Args[4]); err != nil {
			fail(err)
		}
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		way := strings.Split(lines.Text(), "\t")
		common := options(way, trusted, own, records > 1)
		err := error(nil)
		if millis > 0 {
			err = transact(way, common, millis)
		} else {
			err = sendAndRead(way, common, records)
		}
		var untrusted *tls.CertificateVerificationError
		switch {
		case err == nil:
			fmt.Println(way[0], "ok")
		case errors.Is(err, kerr.SaslAuthenticationFailed), errors.As(err, &untrusted):
			fmt.Println(way[0], "refused")
		default:
			fmt.Println(way[0], "failed", err)
		}
	}
}
