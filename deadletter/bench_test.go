package deadletter_test

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/fronta-mq/fronta/deadletter"
)

func withHeaders(n int) *kgo.Record {
	r := source()
	r.Headers = nil
	for i := range n {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: fmt.Sprintf("header-%d", i), Value: []byte("value")})
	}
	return r
}

func benchmark(b *testing.B, run func(src, dead *kgo.Record)) {
	for _, n := range []int{0, 10, 10000} {
		b.Run(fmt.Sprintf("headers=%d", n), func(b *testing.B) {
			src := withHeaders(n)
			dead := deadletter.Record("dlq", src, failure())
			b.ReportAllocs()
			for b.Loop() {
				run(src, dead)
			}
		})
	}
}

func BenchmarkRecord(b *testing.B) {
	info := failure()
	benchmark(b, func(src, _ *kgo.Record) { deadletter.Record("dlq", src, info) })
}

func BenchmarkParse(b *testing.B) {
	benchmark(b, func(_, dead *kgo.Record) {
		if _, err := deadletter.Parse(dead); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkRestore(b *testing.B) {
	benchmark(b, func(_, dead *kgo.Record) { deadletter.Restore(dead) })
}

func BenchmarkIsDeadLetter(b *testing.B) {
	benchmark(b, func(src, dead *kgo.Record) {
		if deadletter.IsDeadLetter(src) || !deadletter.IsDeadLetter(dead) {
			b.Fatal("wrong")
		}
	})
}
