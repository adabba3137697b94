// The franz-go client of one life in a history, led by lines on stdin (life_lines.py has the words). Each command gets a
// line "done", "abortable REASON" or "final REASON"; lines about records and partitions come as they happen. Ends at once,
// without a word to the broker, when stdin does: the life was killed.
//
// A life that also consumes in transactions has a GroupTransactSession, which commits the offsets of all that was polled
// when it commits.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const patience = 60 * time.Second

var (
	saying   sync.Mutex
	servers  string
	id       string
	timeout  time.Duration
	producer *kgo.Client
	consumer *kgo.Client
	session  *kgo.GroupTransactSession
	failed   error // of a record in this transaction
	failing  sync.Mutex
)

type abortable struct{ error }

func say(words ...string) {
	saying.Lock()
	defer saying.Unlock()
	fmt.Println(strings.ReplaceAll(strings.Join(words, "\t"), "\n", " "))
}

func split(partition string) (string, int32) {
	at := strings.LastIndex(partition, "-")
	index, _ := strconv.Atoi(partition[at+1:])
	return partition[:at], int32(index)
}

func names(of map[string][]int32) string {
	var found []string
	for topic, indexes := range of {
		for _, index := range indexes {
			found = append(found, fmt.Sprintf("%s-%d", topic, index))
		}
	}
	sort.Strings(found)
	return strings.Join(found, ",")
}

func common() []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(strings.Split(servers, ",")...),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.RequestTimeoutOverhead(5 * time.Second),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(2 * time.Millisecond),
		kgo.RecordDeliveryTimeout(30 * time.Second),
	}
}

func transactional() []kgo.Opt {
	return append(common(), kgo.TransactionalID(id), kgo.TransactionTimeout(timeout))
}

func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

func open(name, ms string, joined []string) (err error) {
	number, _ := strconv.Atoi(ms)
	timeout = time.Duration(number) * time.Millisecond
	if name == "-" {
		// A broker that was stopped and started again knows only the newest batch of a producer, in Kafka, too. Of several
		// in flight whose responses were lost, the others would be sent again with a new epoch, and be there twice.
		producer, err = kgo.NewClient(append(common(), kgo.StopProducerOnDataLossDetected())...)
		return err
	}
	id = name
	if len(joined) == 0 {
		producer, err = kgo.NewClient(transactional()...)
		return err
	}
	session, err = kgo.NewGroupTransactSession(append(transactional(), consuming(joined[0], joined[1], "read_committed")...)...)
	if err == nil {
		producer, consumer = session.Client(), session.Client()
	}
	return err
}

// initialize fences earlier owners of the transactional id.
func initialize() error {
	ctx, cancel := limited()
	defer cancel()
	_, _, err := producer.ProducerID(ctx)
	return err
}

func note(err error) {
	failing.Lock()
	defer failing.Unlock()
	if failed == nil {
		failed = err
	}
}

func broken() error {
	failing.Lock()
	defer failing.Unlock()
	return failed
}

func send(number, partition, data string) {
	topic, index := split(partition)
	record := &kgo.Record{Topic: topic, Partition: index, Value: []byte(data)}
	said := func(sent *kgo.Record, err error) {
		if err != nil {
			note(err)
			say("unsent", number, err.Error())
			if id == "" && (errors.Is(err, kerr.OutOfOrderSequenceNumber) || errors.Is(err, kerr.UnknownProducerID)) {
				os.Exit(1) // this client sends nothing more
			}
			return
		}
		say("sent", number, strconv.FormatInt(sent.Offset, 10))
	}
	if session != nil {
		session.Produce(context.Background(), record, said)
	} else {
		producer.Produce(context.Background(), record, said)
	}
}

func begin() error {
	failing.Lock()
	failed = nil
	failing.Unlock()
	if session != nil {
		return session.Begin()
	}
	return producer.BeginTransaction()
}

func commit() error {
	ctx, cancel := limited()
	defer cancel()
	if session != nil {
		committed, err := session.End(ctx, kgo.TransactionEndTry(broken() == nil))
		if err == nil && !committed {
			return abortable{errors.New("the session has aborted")}
		}
		return err
	}
	if err := producer.Flush(ctx); err != nil {
		return abortable{err}
	}
	if err := broken(); err != nil {
		return abortable{err}
	}
	return producer.EndTransaction(ctx, kgo.TryCommit)
}

func abort() error {
	ctx, cancel := limited()
	defer cancel()
	if session != nil {
		_, err := session.End(ctx, kgo.TryAbort) // does nothing if the session has aborted
		return err
	}
	if err := producer.AbortBufferedRecords(ctx); err != nil {
		return err
	}
	return producer.EndTransaction(ctx, kgo.TryAbort)
}

func consuming(group, topics, isolation string) []kgo.Opt {
	level := kgo.ReadUncommitted()
	if isolation == "read_committed" {
		level = kgo.ReadCommitted()
	}
	moved := func(what string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, of map[string][]int32) {
			if len(of) > 0 {
				say(what, names(of))
			}
		}
	}
	return []kgo.Opt{kgo.ConsumerGroup(group), kgo.ConsumeTopics(strings.Split(topics, ",")...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(level), kgo.DisableAutoCommit(),
		kgo.SessionTimeout(4 * time.Second), kgo.HeartbeatInterval(500 * time.Millisecond), kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.RequireStableFetchOffsets(), kgo.BlockRebalanceOnPoll(), kgo.OnPartitionsAssigned(moved("assigned")),
		kgo.OnPartitionsRevoked(moved("revoked")), kgo.OnPartitionsLost(moved("revoked"))}
}

func join(group, topics, isolation string) (err error) {
	if session == nil {
		consumer, err = kgo.NewClient(append(common(), consuming(group, topics, isolation)...)...)
	}
	return err
}

func poll(ms string) error {
	number, _ := strconv.Atoi(ms)
	consumer.AllowRebalance() // here, and until there are records: what moves is said before them
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(number)*time.Millisecond)
	defer cancel()
	var fetches kgo.Fetches
	if session != nil {
		fetches = session.PollRecords(ctx, 100)
	} else {
		fetches = consumer.PollRecords(ctx, 100)
	}
	for _, one := range fetches.Errors() {
		if !errors.Is(one.Err, context.DeadlineExceeded) {
			fmt.Fprintln(os.Stderr, one.Topic, one.Partition, one.Err)
		}
	}
	fetches.EachRecord(func(one *kgo.Record) {
		say("record", fmt.Sprintf("%s-%d", one.Topic, one.Partition), strconv.FormatInt(one.Offset, 10), string(one.Value))
	})
	return nil
}

func store(pairs string) error {
	offsets := map[string]map[int32]kgo.EpochOffset{}
	for _, pair := range strings.Split(pairs, ",") {
		at := strings.LastIndex(pair, "=")
		topic, index := split(pair[:at])
		offset, _ := strconv.ParseInt(pair[at+1:], 10, 64)
		if offsets[topic] == nil {
			offsets[topic] = map[int32]kgo.EpochOffset{}
		}
		offsets[topic][index] = kgo.EpochOffset{Epoch: -1, Offset: offset}
	}
	ctx, cancel := limited()
	defer cancel()
	var found error
	consumer.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, response *kmsg.OffsetCommitResponse, err error) {
		found = err
		if err != nil {
			return
		}
		for _, topic := range response.Topics {
			for _, partition := range topic.Partitions {
				if err := kerr.ErrorForCode(partition.ErrorCode); err != nil {
					found = err
				}
			}
		}
	})
	return found
}

// rewind says where the session continues after it has aborted.
func rewind() error {
	for topic, partitions := range consumer.CommittedOffsets() {
		for index, at := range partitions {
			offset := "-"
			if at.Offset >= 0 {
				offset = strconv.FormatInt(at.Offset, 10)
			}
			say("place", fmt.Sprintf("%s-%d", topic, index), offset)
		}
	}
	return nil
}

func leave() error {
	consumer.AllowRebalance()
	if session != nil {
		session.Close()
	} else {
		consumer.Close()
	}
	return nil
}

func run(words []string) error {
	switch words[0] {
	case "open":
		return open(words[1], words[2], words[3:])
	case "init":
		return initialize()
	case "begin":
		return begin()
	case "flush":
		ctx, cancel := limited()
		defer cancel()
		return producer.Flush(ctx)
	case "offsets": // the session commits them
		return nil
	case "commit":
		return commit()
	case "abort":
		return abort()
	case "join":
		return join(words[1], words[2], words[3])
	case "poll":
		return poll(words[1])
	case "store":
		return store(words[1])
	case "rewind":
		return rewind()
	case "leave":
		return leave()
	case "end":
		if session == nil {
			producer.Close()
		}
		return nil
	}
	return fmt.Errorf("no command %s", words[0])
}

func main() {
	servers = os.Args[1]
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		words := strings.Split(lines.Text(), "\t")
		if words[0] == "send" {
			send(words[1], words[2], words[3])
			continue
		}
		err := run(words)
		var again abortable
		switch {
		case err == nil:
			say("done")
		case errors.As(err, &again):
			say("abortable", err.Error())
		default:
			say("final", err.Error())
		}
	}
	os.Exit(0)
}
