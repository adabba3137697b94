// Copies the topic in to the topic out with franz-go, in transactions of a group's member; aborts every third.
//
// Arguments: address, transactional id and group, how many records there are in all. Prints a line for each transaction,
// and ends when all are copied.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func main() {
	address, name := os.Args[1], os.Args[2]
	total, err := strconv.ParseInt(os.Args[3], 10, 64)
	if err != nil {
		fail(err)
	}
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(address),
		kgo.TransactionalID(name),
		kgo.TransactionTimeout(10*time.Second),
		kgo.ConsumerGroup(name),
		kgo.ConsumeTopics("in"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.SessionTimeout(2*time.Second),
		kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.FetchMaxWait(300*time.Millisecond),
		kgo.DefaultProduceTopic("out"),
	)
	if err != nil {
		fail(err)
	}
	defer session.Close()
	ctx := context.Background()
	for round := 1; ; round++ {
		fetches := session.PollRecords(ctx, 60)
		if fetches.Empty() {
			for _, one := range fetches.Errors() {
				fmt.Fprintln(os.Stderr, one.Err)
			}
			continue
		}
		if err := session.Begin(); err != nil {
			fail(err)
		}
		var last int64
		promise := kgo.AbortingFirstErrPromise(session.Client())
		fetches.EachRecord(func(record *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Value: record.Value, Partition: 0}, promise.Promise())
			last = record.Offset
		})
		good := kgo.TransactionEndTry(promise.Err() == nil && round%3 != 0)
		committed, err := session.End(ctx, good)
		if err != nil {
			fail(err)
		}
		fmt.Println(committed, last)
		if committed && last+1 >= total {
			return
		}
	}
}
