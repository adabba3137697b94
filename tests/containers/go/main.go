// Testcontainers for Go, its Kafka module on an image: one message there and back.
//
//	go run . IMAGE
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/testcontainers/testcontainers-go/modules/kafka"
	"github.com/twmb/franz-go/pkg/kgo"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	begun := time.Now()
	container, err := kafka.Run(ctx, os.Args[1], kafka.WithClusterID("test-cluster"))
	check(err)
	seconds := time.Since(begun).Seconds()
	defer container.Terminate(ctx)
	brokers, err := container.Brokers(ctx)
	check(err)
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.AllowAutoTopicCreation(),
		kgo.ConsumeTopics("test-topic"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	check(err)
	defer client.Close()
	record := kgo.Record{Topic: "test-topic", Value: []byte("verification message")}
	check(client.ProduceSync(ctx, &record).FirstErr())
	fetches := client.PollFetches(ctx)
	check(fetches.Err())
	if fetches.NumRecords() != 1 {
		check(fmt.Errorf("%d records", fetches.NumRecords()))
	}
	fmt.Printf("kafka.Run in %.1f s\n", seconds)
}
