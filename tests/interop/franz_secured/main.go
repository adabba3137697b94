// Logs in to a broker in several ways with franz-go, each with records that are written and read.
//
// Arguments: a file in PEM with what is trusted, one with a key and its certificate, and how many records each way writes,
// one in a millisecond; one record without this. A line of the standard input is one way: name, address, security protocol, mechanism, user, password or token, separated by tabs. Prints a line for each.
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

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func options(way []string, trusted *x509.CertPool, own tls.Certificate) []kgo.Opt {
	found := []kgo.Opt{kgo.SeedBrokers(way[1]), kgo.RequestRetries(0), kgo.AllowAutoTopicCreation()}
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
		}
	}
	return found
}

func sendAndRead(way []string, common []kgo.Opt, records int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
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
	for {
		fetches := client.PollFetches(ctx)
		fetches.EachRecord(func(record *kgo.Record) { delete(missing, string(record.Value)) })
		if len(missing) == 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
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
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		way := strings.Split(lines.Text(), "\t")
		err := sendAndRead(way, options(way, trusted, own), records)
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
