package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func control(t *testing.T, method, path, body string) (answer map[string]any) {
	t.Helper()
	request, _ := http.NewRequest(method, os.Getenv("OTTLA_CONTROL")+"/v1"+path, strings.NewReader(body))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err = json.NewDecoder(response.Body).Decode(&answer); err != nil || response.StatusCode >= 300 {
		t.Fatal(method, path, response.Status, answer, err)
	}
	return answer
}

func TestOrders(t *testing.T) {
	control(t, "POST", "/topics", `{"name": "orders-go"}`)
	stored := func() int { return len(control(t, "GET", "/topics/orders-go/records", "")["records"].([]any)) }
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	producer, err := kgo.NewClient(kgo.SeedBrokers(os.Getenv("OTTLA_BOOTSTRAP")), kgo.DefaultProduceTopic("orders-go"))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()

	// The broker appends and its answer is lost: the client sends again, and the order is there once.
	lost := control(t, "POST", "/faults", `{"api": "Produce", "topic": "orders-go", "action": "disconnect",
		"when": "after", "times": 1}`)
	if _, err := producer.ProduceSync(ctx, kgo.StringRecord("bread")).First(); err != nil || stored() != 1 {
		t.Fatal("lost, or stored twice:", err, stored())
	}
	if fault := control(t, "GET", fmt.Sprint("/faults/", lost["id"]), ""); fault["fired"] != 1.0 {
		t.Fatal("no answer was lost:", fault)
	}

	// The producer is as safe as it has to be, both times.
	verdict := control(t, "POST", "/requests/assert", `{"api": "Produce", "topic": "orders-go", "acks": -1,
		"idempotent": true, "count": 2}`)
	if verdict["passed"] != true {
		t.Fatal(verdict["text"])
	}

	// An error that is hard to bring about reaches the application.
	control(t, "POST", "/faults", `{"api": "Produce", "topic": "orders-go", "action": "error",
		"code": "TOPIC_AUTHORIZATION_FAILED", "times": 1}`)
	_, err = producer.ProduceSync(ctx, kgo.StringRecord("milk")).First()
	if !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Fatal("not refused:", err)
	}

	// Eight days pass, and retention takes the order; then all is as it was before.
	control(t, "POST", "/snapshots", `{"name": "go"}`)
	control(t, "POST", "/clock/advance", `{"ms": 691200000}`)
	if stored() != 0 {
		t.Fatal("still there after eight days")
	}
	control(t, "POST", "/snapshots/go/restore", "")
	if stored() != 1 {
		t.Fatal("not back")
	}
}
