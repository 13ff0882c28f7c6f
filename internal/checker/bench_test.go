package checker_test

import (
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/fronta-mq/fronta/internal/checker"
)

// BenchmarkRecord is the cost of a record that is produced, started and accepted, with a commit for every thousand:
// one partition, 10,000 lanes, 256 records in work. The goal is 300 ns.
func BenchmarkRecord(b *testing.B) {
	const window = 256
	lanes := make([]string, 10_000)
	for i := range lanes {
		lanes[i] = "customer-" + strconv.Itoa(i)
	}
	c := checker.New(checker.Options{})
	p := checker.Partition{Topic: "orders"}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		offset := int64(i)
		c.Produced(p, offset, lanes[i*7919%len(lanes)])
		c.Started("a", p, offset, 1, 1)
		if offset >= window {
			c.Ended("a", p, offset-window, checker.Accepted)
			if offset%1000 == 0 {
				c.Committed("a", p, offset-window+1)
			}
		}
	}
	b.StopTimer()
	if r := c.Report(); !r.OK() {
		b.Fatal(r)
	}
}

// BenchmarkRecordWithoutLane is the same for records that are lanes of their own.
func BenchmarkRecordWithoutLane(b *testing.B) {
	c := checker.New(checker.Options{})
	p := checker.Partition{Topic: "orders"}
	b.ReportAllocs()
	for offset := int64(0); b.Loop(); offset++ {
		c.Produced(p, offset, "")
		c.Started("a", p, offset, 1, 1)
		c.Ended("a", p, offset, checker.Accepted)
	}
}

// BenchmarkLaneKnownLate is one lane whose records are produced, as far as is known, after they were handled, and
// pairwise in the wrong order. It must cost the same however long the lane is.
func BenchmarkLaneKnownLate(b *testing.B) {
	const late = 100
	c := checker.New(checker.Options{})
	p := checker.Partition{Topic: "orders"}
	b.ReportAllocs()
	for offset := int64(0); b.Loop(); offset++ {
		c.Started("a", p, offset, 1, 1)
		c.Ended("a", p, offset, checker.Accepted)
		if offset > late {
			c.Produced(p, (offset-late)^1, "lane")
		}
	}
	b.StopTimer()
	if r := c.Report(); !r.OK() {
		b.Fatal(r)
	}
}

// BenchmarkPartitions is BenchmarkRecord with each goroutine on its own partition.
func BenchmarkPartitions(b *testing.B) {
	c := checker.New(checker.Options{})
	var partitions atomic.Int32
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		p := checker.Partition{Topic: "orders", Partition: partitions.Add(1)}
		lanes := make([]string, 10_000)
		for i := range lanes {
			lanes[i] = strconv.Itoa(i)
		}
		for offset := int64(0); pb.Next(); offset++ {
			c.Produced(p, offset, lanes[offset%10_000])
			c.Started("a", p, offset, 1, 1)
			c.Ended("a", p, offset, checker.Accepted)
		}
	})
}

// BenchmarkFinish is the cost of the final report, per record.
func BenchmarkFinish(b *testing.B) {
	const records = 1_000_000
	c := checker.New(checker.Options{})
	p := checker.Partition{Topic: "orders"}
	for offset := range int64(records) {
		c.Produced(p, offset, "")
		c.Started("a", p, offset, 1, 1)
		c.Ended("a", p, offset, checker.Accepted)
	}
	for b.Loop() {
		if r := c.Finish(); !r.OK() {
			b.Fatal(r)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/records, "ns/record")
}
