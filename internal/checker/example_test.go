package checker_test

import (
	"fmt"

	"github.com/fronta-mq/fronta/internal/checker"
)

// A record is retried after the next one of its lane has run, and the offset committed in between.
func Example() {
	c := checker.New(checker.Options{})
	p := checker.Partition{Topic: "orders", Partition: 0}
	c.Produced(p, 0, "anna")
	c.Produced(p, 1, "anna")

	c.Started("consumer-1", p, 0, 1, 7)
	c.Ended("consumer-1", p, 0, checker.Failed)
	c.Started("consumer-1", p, 1, 1, 7)
	c.Ended("consumer-1", p, 1, checker.Accepted)
	c.Committed("consumer-1", p, 2)
	c.Started("consumer-1", p, 0, 2, 7)
	c.Ended("consumer-1", p, 0, checker.Accepted)

	fmt.Println(c.Finish())
	// Output:
	// produced          2
	// handled           2 (attempts 3, running 0)
	// repeated          0
	// dead letters      0
	// lost              0
	// order violations  2 (fences 0)
	// bad commits       1 (regressions 0)
	// bad repeats       0
	// P-2 order: orders/0 offset 1 lane "anna": "consumer-1" started it while offset 0 of its lane was not finished
	// P-1 commit: orders/0 offset 0 lane "anna": offset 2 was committed by "consumer-1" while it was not finished
	// P-2 order: orders/0 offset 0 lane "anna": "consumer-1" started it after it had started offset 1 of its lane
	// PROMISES BROKEN
}
