// Every kind of call of franz-go's admin, kadm, with good and with bad input, in one order.
//
// Argument: address. Prints a line for each call: its name, and what it answered or the error.
package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// show writes a value with what its pointers point to, errors by their texts and maps by their keys.
func show(v reflect.Value) string {
	if v.IsValid() && v.CanInterface() {
		if err, ok := v.Interface().(error); ok && !(v.Kind() == reflect.Interface && v.IsNil()) {
			return fmt.Sprintf("error(%s)", err.Error())
		}
	}
	switch v.Kind() {
	case reflect.Invalid:
		return "nil"
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return "nil"
		}
		return show(v.Elem())
	case reflect.Struct:
		var parts []string
		for i := 0; i < v.NumField(); i++ {
			if v.Type().Field(i).IsExported() {
				parts = append(parts, v.Type().Field(i).Name+"="+show(v.Field(i)))
			}
		}
		return "{" + strings.Join(parts, " ") + "}"
	case reflect.Slice, reflect.Array:
		var parts []string
		for i := 0; i < v.Len(); i++ {
			parts = append(parts, show(v.Index(i)))
		}
		sort.Strings(parts) // much of it comes out of hash tables
		return "[" + strings.Join(parts, " ") + "]"
	case reflect.Map:
		var parts []string
		for _, key := range v.MapKeys() {
			parts = append(parts, show(key)+":"+show(v.MapIndex(key)))
		}
		sort.Strings(parts)
		return "map[" + strings.Join(parts, " ") + "]"
	}
	return fmt.Sprint(v)
}

// call prints one answer; changes takes time to be seen by a broker whose controller made it.
func call(name string, changes bool, answer any, err error) {
	if err != nil {
		fmt.Printf("%s error(%v)\n", name, err)
	} else {
		fmt.Printf("%s %s\n", name, show(reflect.ValueOf(answer)))
	}
	if changes {
		time.Sleep(300 * time.Millisecond)
	}
}

func text(s string) *string { return &s }

func main() {
	client, err := kgo.NewClient(kgo.SeedBrokers(os.Args[1]), kgo.ClientID("admin"), kgo.RequestRetries(3),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		panic(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	topics(ctx, admin, client)
	configs(ctx, admin)
	groups(ctx, admin)
	access(ctx, admin)
	cluster(ctx, admin)
}

func topics(ctx context.Context, admin *kadm.Client, client *kgo.Client) {
	made, err := admin.CreateTopics(ctx, 2, 1, map[string]*string{"retention.ms": text("100000")}, "t", "gone", "bad name")
	call("CreateTopics", true, made, err)
	again, err := admin.CreateTopics(ctx, 1, 1, nil, "t")
	call("CreateTopics again", true, again, err)
	wrong, err := admin.CreateTopics(ctx, 1, 1, map[string]*string{"no.such": text("1")}, "x")
	call("CreateTopics wrong", true, wrong, err)
	checked, err := admin.ValidateCreateTopics(ctx, 0, 1, nil, "x")
	call("ValidateCreateTopics", true, checked, err)
	grown, err := admin.UpdatePartitions(ctx, 3, "t", "absent")
	call("UpdatePartitions", true, grown, err)
	fewer, err := admin.ValidateUpdatePartitions(ctx, 1, "t")
	call("ValidateUpdatePartitions", true, fewer, err)
	deleted, err := admin.DeleteTopics(ctx, "gone", "absent")
	call("DeleteTopics", true, deleted, err)
	listed, err := admin.ListTopics(ctx, "t", "absent")
	call("ListTopics", false, listed, err)
	for i := 0; i < 10; i++ {
		record := &kgo.Record{Topic: "t", Partition: 0, Value: []byte("v"), Timestamp: time.UnixMilli(1000 + int64(i))}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			panic(err)
		}
	}
	ends, err := admin.ListMaxTimestampOffsets(ctx, "absent")
	call("ListMaxTimestampOffsets", false, ends, err)
	after, err := admin.ListOffsetsAfterMilli(ctx, 99999, "t")
	call("ListOffsetsAfterMilli", false, after, err)
	var far kadm.Offsets
	far.AddOffset("t", 0, 10000, -1)
	far.AddOffset("absent", 0, 1, -1)
	cut, err := admin.DeleteRecords(ctx, far)
	call("DeleteRecords", true, cut, err)
	var set kadm.TopicsSet
	set.Add("absent", 0)
	producers, err := admin.DescribeProducers(ctx, set)
	call("DescribeProducers", false, producers, err)
}

func configs(ctx context.Context, admin *kadm.Client) {
	set := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: text("5000000")}}
	changed, err := admin.AlterTopicConfigs(ctx, set, "t", "absent")
	call("AlterTopicConfigs", true, changed, err)
	bad := []kadm.AlterConfig{{Op: kadm.AppendConfig, Name: "retention.ms", Value: text("1")}}
	refused, err := admin.AlterTopicConfigs(ctx, bad, "t")
	call("AlterTopicConfigs append", true, refused, err)
	all, err := admin.AlterTopicConfigsState(ctx, []kadm.AlterConfig{{Name: "segment.ms", Value: text("600000")}}, "t")
	call("AlterTopicConfigsState", true, all, err)
	described, err := admin.DescribeTopicConfigs(ctx, "t", "absent")
	call("DescribeTopicConfigs", false, described, err)
	broker, err := admin.ValidateAlterBrokerConfigs(ctx, []kadm.AlterConfig{{Name: "node.id", Value: text("9")}}, 1)
	call("ValidateAlterBrokerConfigs", false, broker, err)
	entity := kadm.ClientQuotaEntity{{Type: "user", Name: text("alice")}, {Type: "client-id"}}
	entries := []kadm.AlterClientQuotaEntry{{Entity: entity, Ops: []kadm.AlterClientQuotaOp{{Key: "producer_byte_rate", Value: 1024}}}}
	quotas, err := admin.AlterClientQuotas(ctx, entries)
	call("AlterClientQuotas", true, quotas, err)
	entries[0].Ops[0].Key = "no_rate"
	unknown, err := admin.AlterClientQuotas(ctx, entries)
	call("AlterClientQuotas unknown", true, unknown, err)
	found, err := admin.DescribeClientQuotas(ctx, false, []kadm.DescribeClientQuotaComponent{{Type: "user", MatchType: kmsg.QuotasMatchTypeAny}})
	call("DescribeClientQuotas", false, found, err)
}

func groups(ctx context.Context, admin *kadm.Client) {
	var at kadm.Offsets
	at.AddOffset("t", 0, 4, -1)
	committed, err := admin.CommitOffsets(ctx, "g", at)
	call("CommitOffsets", true, committed, err)
	fetched, err := admin.FetchOffsets(ctx, "g")
	call("FetchOffsets", false, fetched, err)
	many := admin.FetchManyOffsets(ctx, "g", "absent")
	call("FetchManyOffsets", false, many, nil)
	listed, err := admin.ListGroups(ctx)
	call("ListGroups", false, listed, err)
	described, err := admin.DescribeGroups(ctx, "g", "absent")
	call("DescribeGroups", false, described, err)
	lag, err := admin.Lag(ctx, "g")
	call("Lag", false, lag, err)
	var set kadm.TopicsSet
	set.Add("t", 0)
	gone, err := admin.DeleteOffsets(ctx, "g", set)
	call("DeleteOffsets", true, gone, err)
	deleted, err := admin.DeleteGroups(ctx, "g", "absent")
	call("DeleteGroups", true, deleted, err)
	admin.FindTxnCoordinators(ctx, "absent")
	time.Sleep(2 * time.Second) // the topic of transactions is made now
	transactions, err := admin.ListTransactions(ctx, nil, nil)
	call("ListTransactions", false, transactions, err)
	unknown, err := admin.DescribeTransactions(ctx, "absent")
	call("DescribeTransactions", false, unknown, err)
}

func access(ctx context.Context, admin *kadm.Client) {
	builder := kadm.NewACLs().Allow("User:a").AllowHosts("*").Topics("t").Groups("g").
		Operations(kadm.OpRead, kadm.OpDescribe).ResourcePatternType(kadm.ACLPatternLiteral)
	made, err := admin.CreateACLs(ctx, builder)
	call("CreateACLs", true, made, err)
	asked := kadm.NewACLs().AnyResource().Allow().AllowHosts().Deny().DenyHosts().
		Operations().ResourcePatternType(kadm.ACLPatternAny)
	found, err := admin.DescribeACLs(ctx, asked)
	call("DescribeACLs", false, found, err)
	deleted, err := admin.DeleteACLs(ctx, asked)
	call("DeleteACLs", true, deleted, err)
	upsert := []kadm.UpsertSCRAM{{User: "bob", Mechanism: kadm.ScramSha256, Iterations: 8192, Password: "p"}}
	users, err := admin.AlterUserSCRAMs(ctx, []kadm.DeleteSCRAM{{User: "nobody", Mechanism: kadm.ScramSha512}}, upsert)
	call("AlterUserSCRAMs", true, users, err)
	described, err := admin.DescribeUserSCRAMs(ctx, "bob", "nobody")
	call("DescribeUserSCRAMs", false, described, err)
	_, err = admin.CreateDelegationToken(ctx, kadm.CreateDelegationToken{})
	call("CreateDelegationToken", false, nil, err)
	tokens, err := admin.DescribeDelegationTokens(ctx)
	call("DescribeDelegationTokens", false, tokens, err)
}

func cluster(ctx context.Context, admin *kadm.Client) {
	var set kadm.TopicsSet
	set.Add("t", 0)
	set.Add("absent", 0)
	elected, err := admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, set)
	call("ElectLeaders", true, elected, err)
	var moves kadm.AlterPartitionAssignmentsReq
	moves.Assign("t", 0, []int32{1})
	moves.Assign("t", 1, []int32{9})
	moved, err := admin.AlterPartitionAssignments(ctx, moves)
	call("AlterPartitionAssignments", true, moved, err)
	pending, err := admin.ListPartitionReassignments(ctx, set)
	call("ListPartitionReassignments", false, pending, err)
	dirs, err := admin.DescribeAllLogDirs(ctx, set)
	call("DescribeAllLogDirs", false, len(dirs), err)
	var dir kadm.AlterReplicaLogDirsReq
	dir.Add("/no/such/folder", set)
	alter, err := admin.AlterAllReplicaLogDirs(ctx, dir)
	call("AlterAllReplicaLogDirs", true, alter, err)
	features, err := admin.UpdateFeatures(ctx, true, kadm.FeatureUpdate{Feature: "no.such", MaxVersionLevel: 1})
	call("UpdateFeatures", true, features, err)
	resources, err := admin.ListConfigResources(ctx)
	call("ListConfigResources", false, resources, err)
	brokers, err := admin.ListBrokers(ctx)
	call("ListBrokers", false, brokers, err)
}
