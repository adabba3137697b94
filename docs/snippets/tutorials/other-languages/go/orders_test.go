package orders

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// control makes one call to the control plane.
func control(t *testing.T, method, path, body string) (answer map[string]any) {
	t.Helper()
	request, _ := http.NewRequest(method, os.Getenv("OTTLA_CONTROL")+"/v1"+path, strings.NewReader(body))
	request.Header.Set("Authorization", "Bearer "+os.Getenv("OTTLA_CONTROL_TOKEN"))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || response.StatusCode >= 300 {
		t.Fatal(response.Status, answer, err)
	}
	return answer
}

func TestAnOrderIsStoredOnceAndDeletedAfterEightDays(t *testing.T) {
	control(t, "POST", "/topics", `{"name": "orders-go"}`)
	control(t, "POST", "/faults",
		`{"action": "disconnect", "when": "after", "api": "Produce", "topic": "orders-go", "times": 1}`)
	stored := func() int { return len(control(t, "GET", "/topics/orders-go/records", "")["records"].([]any)) }

	producer, err := kgo.NewClient(kgo.SeedBrokers(os.Getenv("OTTLA_BOOTSTRAP")), kgo.DefaultProduceTopic("orders-go"))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	if err := producer.ProduceSync(context.Background(), kgo.StringRecord("bread")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if stored() != 1 {
		t.Fatal("stored", stored(), "times")
	}
	control(t, "POST", "/clock/advance", `{"ms": 691200000}`)
	if stored() != 0 {
		t.Fatal("still stored after eight days")
	}
}
