package fronta_test

// Records of every shape reach the handler as they were produced, and the
// dead-letter topic too.

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/fake"
)

func TestRecordsOfEveryShape(t *testing.T) {
	many := make([]kgo.RecordHeader, 10_000)
	for i := range many {
		many[i] = kgo.RecordHeader{Key: "h" + strconv.Itoa(i), Value: []byte(strconv.Itoa(i))}
	}
	pattern := bytes.Repeat([]byte{1, 2, 3, 0}, 1<<18)
	at := time.UnixMilli(1_700_000_000_000)
	shapes := map[string]*kgo.Record{
		"no key":         {Value: []byte("v"), Timestamp: at},
		"no value":       {Key: key("k"), Timestamp: at},
		"nothing at all": {Timestamp: at},
		"empty":          {Key: []byte{}, Value: []byte{}, Timestamp: at},
		"1 MiB value":    {Key: key("k"), Value: pattern, Timestamp: at},
		"1 MiB key":      {Key: pattern, Value: []byte("v"), Timestamp: at},
		"10,000 headers": {Key: key("k"), Value: []byte("v"), Headers: many, Timestamp: at},
		"header corners": {Key: key("k"), Headers: []kgo.RecordHeader{{}, {Key: "a"}, {Key: "a", Value: []byte{}}, {Key: "\xff", Value: []byte{0}}}, Timestamp: at},
		"1970":           {Key: key("k"), Value: []byte("v"), Timestamp: time.UnixMilli(0)},
		"timestamp -1":   {Key: key("k"), Value: []byte("v"), Timestamp: time.UnixMilli(-1)},
		"far future":     {Key: key("k"), Value: []byte("v"), Timestamp: time.UnixMilli(7258118400000)},
	}
	for name, shape := range shapes {
		for _, order := range []fronta.Order{fronta.ByKey(), fronta.ByBucket(3), fronta.ByPartition(), fronta.Unordered()} {
			t.Run(fmt.Sprint(name, ", ", order), func(t *testing.T) {
				virtual(t, 1, func(b *bench) {
					r := *shape
					r.Topic = orders
					b.produce(&r)
					var seen []*fronta.Record
					cfg := b.config()
					cfg.Order, cfg.DeadLetter, cfg.MaxDeliveries, cfg.Retry = order, fronta.DeadLetterTopic(letters), 2, fronta.ConstantBackoff(time.Second)
					c := b.run(cfg, func(_ context.Context, r *fronta.Record) error {
						seen = append(seen, r) // one record
						return errDeclined
					})
					b.until("it is done", func() bool { return b.committed(0) == 1 })
					c.stop()
					if len(seen) != 2 {
						t.Fatalf("%d calls, want 2", len(seen))
					}
					same := func(what string, k, v []byte, headers []kgo.RecordHeader, ts time.Time) {
						if (k == nil) != (shape.Key == nil) || !bytes.Equal(k, shape.Key) {
							t.Errorf("%s: another key", what)
						}
						if (v == nil) != (shape.Value == nil) || !bytes.Equal(v, shape.Value) {
							t.Errorf("%s: another value", what)
						}
						if d := cmp.Diff(shape.Headers, headers); d != "" && len(shape.Headers)+len(headers) > 0 {
							t.Errorf("%s: other headers: %s", what, d)
						}
						if ts.UnixMilli() != shape.Timestamp.UnixMilli() {
							t.Errorf("%s: timestamp %d, want %d", what, ts.UnixMilli(), shape.Timestamp.UnixMilli())
						}
					}
					for i, r := range seen {
						same(fmt.Sprint("attempt ", i+1), r.Key, r.Value, r.Headers, r.Timestamp)
					}
					dead := b.deadLetters()
					if len(dead) != 1 {
						t.Fatalf("%d dead letters", len(dead))
					}
					same("dead letter", dead[0].Key, dead[0].Value, dead[0].Headers, dead[0].record.Timestamp)
				}, fake.Configs(map[string]string{"message.max.bytes": "4000000"}))
			})
		}
	}
}

// H-014, H-015: markers of transactions are no records; lag ends at 0 and
// aborted records are seen or not, as the isolation says.
func TestTransactions(t *testing.T) {
	for name, tt := range map[string]struct {
		isolation fronta.Isolation
		want      int
	}{"read uncommitted": {fronta.ReadUncommitted, 20}, "read committed": {fronta.ReadCommitted, 10}} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 1, func(b *bench) {
				tx := b.newClient(kgo.TransactionalID("tx"))
				for i := range 20 {
					must(t, tx.BeginTransaction())
					must(t, tx.ProduceSync(b.t.Context(), &kgo.Record{Topic: orders, Key: key("k"), Value: []byte(strconv.Itoa(i))}).FirstErr())
					must(t, tx.EndTransaction(b.t.Context(), kgo.TransactionEndTry(i%2 == 0)))
				}
				cfg := b.config()
				cfg.Isolation = tt.isolation
				var ran journal
				c := b.run(cfg, func(_ context.Context, r *fronta.Record) error {
					if r.Attrs.IsControl() {
						t.Error("a control record was handed out")
					}
					ran.add(r)
					return nil
				})
				b.until("lag is 0", func() bool {
					ps := c.Stats().Partitions
					return b.committed(0) == 40 && len(ps) == 1 && ps[0].Lag() == 0
				})
				c.stop()
				if ran.len() != tt.want {
					t.Errorf("%d records ran, want %d", ran.len(), tt.want)
				}
			})
		})
	}
}

// StartAt: where a group without offsets begins.
func TestStartAt(t *testing.T) {
	for name, tt := range map[string]struct {
		start fronta.Start
		want  []int64
	}{
		"earliest":     {fronta.Earliest(), []int64{0, 1, 2, 3, 4}},
		"latest":       {fronta.Latest(), []int64{4}},
		"since":        {fronta.Since(time.UnixMilli(3000)), []int64{2, 3, 4}},
		"since 1970":   {fronta.Since(time.UnixMilli(0)), []int64{0, 1, 2, 3, 4}},
		"since future": {fronta.Since(time.UnixMilli(1e12)), []int64{4}},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 1, func(b *bench) {
				for i := range 4 {
					b.produce(&kgo.Record{Topic: orders, Key: key("k"), Timestamp: time.UnixMilli(int64(i+1) * 1000)})
				}
				var ran journal
				cfg := b.config()
				cfg.StartAt = tt.start
				c := b.run(cfg, func(_ context.Context, r *fronta.Record) error { ran.add(r); return nil })
				b.until("it runs", func() bool { return len(c.Stats().Partitions) == 1 })
				time.Sleep(5 * time.Second)
				b.produce(&kgo.Record{Topic: orders, Key: key("k")})
				b.until("the last one", func() bool { return b.committed(0) == 5 })
				c.stop()
				if d := cmp.Diff(tt.want, ran.offsets()); d != "" {
					t.Error(d)
				}
			})
		})
	}
}
