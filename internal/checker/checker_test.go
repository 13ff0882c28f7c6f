package checker_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fronta-mq/fronta/internal/checker"
)

var orders = checker.Partition{Topic: "orders", Partition: 3}

// run is a history being told, in few words.
type run struct{ *checker.Checker }

func newRun(opts checker.Options) run { return run{checker.New(opts)} }

// produce puts records with consecutive offsets into lanes.
func (h run) produce(first int64, lanes ...string) {
	for i, lane := range lanes {
		h.Produced(orders, first+int64(i), lane)
	}
}

func (h run) start(owner string, fence int64, offsets ...int64) {
	for _, offset := range offsets {
		h.Started(owner, orders, offset, 1, fence)
	}
}

func (h run) accept(owner string, offsets ...int64) {
	for _, offset := range offsets {
		h.Ended(owner, orders, offset, checker.Accepted)
	}
}

// handle runs records one after another.
func (h run) handle(owner string, fence int64, offsets ...int64) {
	for _, offset := range offsets {
		h.start(owner, fence, offset)
		h.accept(owner, offset)
	}
}

// TestPromises tells for each rule a history that keeps it and one that breaks it and is nearly the same.
func TestPromises(t *testing.T) {
	t.Parallel()
	exact := checker.Options{Progress: checker.Exact}
	prompt := checker.Options{PromptDeadLetters: true}
	for _, test := range []struct {
		name string
		opts checker.Options
		good func(h run)
		bad  func(h run)
		want string // the first line of the bad history's violations, without the partition
		also []string
	}{
		{
			name: "a record is never handled",
			good: func(h run) { h.produce(0, "a", "b"); h.handle("x", 1, 0, 1) },
			bad:  func(h run) { h.produce(0, "a", "b"); h.handle("x", 1, 0) },
			want: `P-1 lost: offset 1 lane "b": it was produced and never finished: nobody in good standing started it`,
		},
		{
			name: "a record fails and is forgotten",
			good: func(h run) {
				h.produce(0, "a")
				h.start("x", 1, 0)
				h.Ended("x", orders, 0, checker.Failed)
				h.handle("x", 1, 0)
			},
			bad: func(h run) {
				h.produce(0, "a")
				h.start("x", 1, 0)
				h.Ended("x", orders, 0, checker.Failed)
			},
			want: `P-1 lost: offset 0 lane "a": it was produced and never finished: "x" was the last to start it`,
		},
		{
			name: "a handler never returns",
			good: func(h run) { h.start("x", 1, 4); h.accept("x", 4); h.produce(4, "") },
			bad:  func(h run) { h.start("x", 1, 4) },
			want: `P-1 lost: offset 4: it was seen in a handler and never finished: "x" is still running it`,
		},
		{
			name: "a rejected record has no dead letter",
			good: func(h run) {
				h.produce(0, "a")
				h.start("x", 1, 0)
				h.Ended("x", orders, 0, checker.RejectedPending)
				h.DeadLettered(orders, 0, "rejected")
			},
			bad: func(h run) {
				h.produce(0, "a")
				h.start("x", 1, 0)
				h.Ended("x", orders, 0, checker.RejectedPending)
			},
			want: `P-1 lost: offset 0 lane "a": it was produced and never finished: "x" rejected it, and no dead letter was seen`,
		},
		{
			name: "a rejected record is given to another owner and forgotten",
			good: func(h run) {
				h.produce(0, "a")
				h.start("x", 1, 0)
				h.Ended("x", orders, 0, checker.RejectedPending)
				h.Killed("x")
				h.handle("y", 2, 0)
			},
			bad: func(h run) {
				h.produce(0, "a")
				h.start("x", 1, 0)
				h.Ended("x", orders, 0, checker.RejectedPending)
				h.Killed("x")
				h.start("y", 2, 0)
				h.Ended("y", orders, 0, checker.Abandoned)
			},
			want: `P-1 lost: offset 0 lane "a": it was produced and never finished: "y" was the last to start it`,
		},
		{
			name: "a commit passes a record that runs",
			good: func(h run) {
				h.produce(0, "a", "b")
				h.start("x", 1, 0)
				h.handle("x", 1, 1)
				h.Committed("x", orders, 0)
				h.accept("x", 0)
				h.Committed("x", orders, 2)
			},
			bad: func(h run) {
				h.produce(0, "a", "b")
				h.start("x", 1, 0)
				h.handle("x", 1, 1)
				h.Committed("x", orders, 2)
				h.accept("x", 0)
			},
			want: `P-1 commit: offset 0 lane "a": offset 2 was committed by "x" while it was not finished`,
		},
		{
			name: "a commit passes a record that waits for its retry",
			good: func(h run) {
				h.produce(0, "a")
				h.start("x", 1, 0)
				h.Ended("x", orders, 0, checker.Failed)
				h.handle("x", 1, 0)
				h.Committed("", orders, 1)
			},
			bad: func(h run) {
				h.produce(0, "a")
				h.start("x", 1, 0)
				h.Ended("x", orders, 0, checker.Failed)
				h.Committed("", orders, 1)
				h.handle("x", 1, 0)
			},
			want: `P-1 commit: offset 0 lane "a": offset 1 was committed while it was not finished`,
		},
		{
			name: "a commit passes a rejected record whose dead letter is never seen",
			good: func(h run) { // the dead letter is read late
				h.produce(0, "a")
				h.start("x", 1, 0)
				h.Ended("x", orders, 0, checker.RejectedPending)
				h.Committed("x", orders, 1)
				h.DeadLettered(orders, 0, "rejected")
			},
			bad: func(h run) {
				h.produce(0, "a")
				h.start("x", 1, 0)
				h.Ended("x", orders, 0, checker.RejectedPending)
				h.Committed("x", orders, 1)
			},
			want: `P-1 commit: offset 0 lane "a": offset 1 was committed by "x" while it was not finished`,
			also: []string{`P-1 lost: offset 0`},
		},
		{
			name: "a commit is faster than a prompt dead letter",
			opts: prompt,
			good: func(h run) {
				h.produce(0, "a")
				h.start("x", 1, 0)
				h.Ended("x", orders, 0, checker.RejectedPending)
				h.DeadLettered(orders, 0, "rejected")
				h.Committed("x", orders, 1)
			},
			bad: func(h run) {
				h.produce(0, "a")
				h.start("x", 1, 0)
				h.Ended("x", orders, 0, checker.RejectedPending)
				h.Committed("x", orders, 1)
				h.DeadLettered(orders, 0, "rejected")
			},
			want: `P-1 commit: offset 0 lane "a": offset 1 was committed by "x" while it was not finished`,
		},
		{
			name: "a commit passes a record that is heard of later",
			good: func(h run) { h.handle("x", 1, 0); h.Committed("x", orders, 1); h.produce(0, "a") },
			bad:  func(h run) { h.Committed("x", orders, 1); h.produce(0, "a"); h.handle("x", 1, 0) },
			want: `P-1 commit: offset 0 lane "a": offset 1 was committed while it was not finished`,
		},
		{
			name: "a start below the committed offset of a record not heard of before",
			good: func(h run) { h.Committed("x", orders, 1); h.handle("x", 1, 1); h.produce(1, "a") },
			bad:  func(h run) { h.Committed("x", orders, 2); h.handle("x", 1, 1); h.produce(1, "a") },
			want: `P-1 commit: offset 1 lane "a": offset 2 was committed while it was not finished`,
		},
		{
			name: "a commit passes a repeat that runs",
			good: func(h run) {
				h.produce(0, "a")
				h.handle("x", 1, 0)
				h.Killed("x")
				h.handle("y", 2, 0)
				h.Committed("y", orders, 1)
			},
			bad: func(h run) {
				h.produce(0, "a")
				h.handle("x", 1, 0)
				h.Killed("x")
				h.start("y", 2, 0)
				h.Committed("y", orders, 1)
				h.accept("y", 0)
			},
			want: `P-1 commit: offset 0 lane "a": offset 1 was committed by "y" while it was not finished`,
		},
		{
			name: "a commit goes back",
			good: func(h run) {
				h.produce(0, "a", "b")
				h.handle("x", 1, 0, 1)
				h.Committed("x", orders, 1)
				h.Committed("x", orders, 2)
				h.Committed("x", orders, 2)
			},
			bad: func(h run) {
				h.produce(0, "a", "b")
				h.handle("x", 1, 0, 1)
				h.Committed("x", orders, 2)
				h.Committed("x", orders, 1)
			},
			want: `P-3 regression: offset 1: "x" committed offset 1 after offset 2 had been committed`,
		},
		{
			name: "a fenced owner's commit goes back",
			good: func(h run) { // its report is late
				h.produce(0, "a", "b")
				h.handle("x", 1, 0)
				h.handle("y", 2, 1)
				h.Committed("y", orders, 2)
				h.Committed("x", orders, 1)
				h.Lost("x", orders)
				h.Committed("x", orders, 1)
			},
			bad: func(h run) {
				h.produce(0, "a", "b")
				h.handle("x", 1, 0)
				h.handle("y", 2, 1)
				h.Committed("y", orders, 2)
				h.Committed("x", orders, 1)
			},
			want: `P-3 regression: offset 1: "x" committed offset 1 after offset 2 had been committed`,
		},
		{
			name: "two records of a lane at once",
			good: func(h run) { h.produce(0, "a", "b"); h.start("x", 1, 0, 1); h.accept("x", 1, 0) },
			bad:  func(h run) { h.produce(0, "a", "a"); h.start("x", 1, 0, 1); h.accept("x", 0, 1) },
			want: `P-2 overlap: offset 1 lane "a": "x" started it while it was itself running offset 0 of its lane`,
		},
		{
			name: "a record twice at once",
			good: func(h run) { h.produce(0, "", ""); h.start("x", 1, 0, 1); h.accept("x", 0, 1) },
			bad: func(h run) {
				h.produce(0, "")
				h.start("x", 1, 0, 0)
				h.Ended("x", orders, 0, checker.Failed)
				h.accept("x", 0)
			},
			want: `P-2 overlap: offset 0: "x" started it while it was itself running the same record`,
		},
		{
			name: "a failed record is overtaken",
			good: func(h run) {
				h.produce(0, "a", "a")
				h.start("x", 1, 0)
				h.Ended("x", orders, 0, checker.Failed)
				h.handle("x", 1, 0, 1)
			},
			bad: func(h run) {
				h.produce(0, "a", "a")
				h.start("x", 1, 0)
				h.Ended("x", orders, 0, checker.Failed)
				h.handle("x", 1, 1, 0)
			},
			want: `P-2 order: offset 1 lane "a": "x" started it while offset 0 of its lane was not finished`,
			also: []string{`P-2 order: offset 0 lane "a": "x" started it after it had started offset 1 of its lane`},
		},
		{
			name: "a rejected record is overtaken and has no dead letter",
			good: func(h run) { // the dead letters are read late
				h.produce(0, "a", "a", "a")
				h.start("x", 1, 0)
				h.Ended("x", orders, 0, checker.RejectedPending)
				h.start("x", 1, 1)
				h.Ended("x", orders, 1, checker.Failed)
				h.handle("x", 1, 2)
				h.DeadLettered(orders, 0, "rejected")
				h.DeadLettered(orders, 1, "deliveries")
			},
			bad: func(h run) { // the next owner has to run it after all
				h.produce(0, "a", "a", "a")
				h.start("x", 1, 0)
				h.Ended("x", orders, 0, checker.RejectedPending)
				h.start("x", 1, 1)
				h.Ended("x", orders, 1, checker.Failed)
				h.handle("x", 1, 2)
				h.DeadLettered(orders, 0, "rejected")
				h.Killed("x")
				h.handle("y", 2, 1, 2)
			},
			want: `P-2 order: offset 2 lane "a": "x" started it while offset 1 of its lane was not finished`,
		},
		{
			name: "a record overtakes a prompt dead letter",
			opts: prompt,
			good: func(h run) {
				h.produce(0, "a", "a")
				h.start("x", 1, 0)
				h.DeadLettered(orders, 0, "rejected")
				h.Ended("x", orders, 0, checker.RejectedPending)
				h.handle("x", 1, 1)
			},
			bad: func(h run) {
				h.produce(0, "a", "a")
				h.start("x", 1, 0)
				h.Ended("x", orders, 0, checker.RejectedPending)
				h.start("x", 1, 1)
				h.DeadLettered(orders, 0, "rejected")
				h.accept("x", 1)
			},
			want: `P-2 order: offset 1 lane "a": "x" started it while offset 0 of its lane was not finished`,
		},
		{
			name: "lanes that are known late",
			good: func(h run) { h.handle("x", 1, 0, 1, 2); h.produce(0, "a", "a", "a") },
			bad:  func(h run) { h.handle("x", 1, 0, 2, 1); h.produce(0, "a", "a", "a") },
			want: `P-2 order: offset 2 lane "a": "x" started it while offset 1 of its lane was not finished`,
		},
		{
			name: "an earlier record is known late",
			good: func(h run) { h.produce(1, "a"); h.handle("x", 1, 0, 1); h.produce(0, "a") },
			bad:  func(h run) { h.produce(1, "a"); h.handle("x", 1, 1, 0); h.produce(0, "a") },
			want: `P-2 order: offset 1 lane "a": "x" started it while offset 0 of its lane was not finished`,
		},
		{
			name: "gaps between offsets",
			good: func(h run) {
				h.Produced(orders, 5, "a")
				h.Produced(orders, 1<<40, "a")
				h.handle("x", 1, 5, 1<<40)
				h.Committed("x", orders, 1<<40+1)
			},
			bad: func(h run) {
				h.Produced(orders, 5, "a")
				h.Produced(orders, 1<<40, "a")
				h.handle("x", 1, 1<<40, 5)
				h.Committed("x", orders, 1<<40+1)
			},
			want: `P-2 order: offset 1099511627776 lane "a": "x" started it while offset 5 of its lane was not finished`,
			also: []string{`P-2 order: offset 5`},
		},
		{ // H-068
			name: "repeats in another order",
			good: func(h run) {
				h.produce(0, "a", "a")
				h.handle("x", 1, 0, 1)
				h.Killed("x")
				h.handle("y", 2, 0, 1)
			},
			bad: func(h run) {
				h.produce(0, "a", "a")
				h.handle("x", 1, 0, 1)
				h.Killed("x")
				h.handle("y", 2, 1, 0)
			},
			want: `P-2 order: offset 0 lane "a": "y" started it after it had started offset 1 of its lane`,
		},
		{
			name: "a successor overlaps with a handler of before",
			good: func(h run) { // it was declared dead
				h.produce(0, "a")
				h.start("x", 1, 0)
				h.Lost("x", orders)
				h.start("y", 2, 0)
				h.accept("x", 0)
				h.accept("y", 0)
			},
			bad: func(h run) { // it gave the partition back
				h.produce(0, "a")
				h.start("x", 1, 0)
				h.Revoked("x", orders)
				h.start("y", 2, 0)
				h.accept("x", 0)
				h.accept("y", 0)
			},
			want: `P-2 overlap: offset 0 lane "a": "y" started it while "x", which had given the partition back, was running the same record`,
		},
		{
			name: "a successor overlaps with an owner that does not know of its loss",
			good: func(h run) {
				h.produce(0, "a")
				h.start("x", 1, 0)
				h.start("y", 2, 0)
				h.Lost("x", orders)
				h.accept("x", 0)
				h.accept("y", 0)
			},
			bad: func(h run) {
				h.produce(0, "a")
				h.start("x", 1, 0)
				h.start("y", 2, 0)
				h.accept("x", 0)
				h.accept("y", 0)
			},
			want: `P-2 overlap: offset 0 lane "a": "y" started it while "x", never reported lost, was running the same record`,
		},
		{
			name: "an owner that is only replaced gives the partition back afterwards",
			good: func(h run) {
				h.produce(0, "a")
				h.start("x", 1, 0)
				h.start("y", 2, 0)
				h.Killed("x")
				h.accept("y", 0)
			},
			bad: func(h run) {
				h.produce(0, "a")
				h.start("x", 1, 0)
				h.start("y", 2, 0)
				h.Stopped("x")
				h.accept("y", 0)
			},
			want: `P-2 overlap: offset 0 lane "a": "y" started it while "x", which had given the partition back, was running the same record`,
		},
		{ // H-042
			name: "two owners with one fence",
			good: func(h run) { h.produce(0, "a", "a"); h.handle("x", 1, 0); h.handle("y", 1, 1) },
			bad: func(h run) {
				h.produce(0, "a", "a")
				h.start("x", 1, 0)
				h.start("y", 1, 1)
				h.accept("x", 0)
				h.accept("y", 1)
			},
			want: `P-2 overlap: offset 1 lane "a": "y" started it while "x", never reported lost, was running offset 0 of its lane`,
		},
		{
			name: "a new owner with the fence of the old one",
			opts: checker.Options{FencesRise: true},
			good: func(h run) {
				h.produce(0, "a", "a")
				h.handle("x", 1, 0)
				h.Revoked("x", orders)
				h.handle("y", 2, 1)
			},
			bad: func(h run) {
				h.produce(0, "a", "a")
				h.handle("x", 1, 0)
				h.Revoked("x", orders)
				h.handle("y", 1, 1)
			},
			want: `P-2 fence: offset 1 lane "a": "y" started it with fence 1, which "x" had used before`,
		},
		{
			name: "a fence falls within one owner",
			good: func(h run) { h.produce(0, "a", "b"); h.handle("x", 2, 0); h.handle("x", 3, 1); h.Killed("x") },
			bad:  func(h run) { h.produce(0, "a", "b"); h.handle("x", 3, 0); h.handle("x", 2, 1); h.Killed("x") },
			want: `P-2 fence: offset 1 lane "b": "x" started it with fence 2 after it had used a higher one itself`,
		},
		{
			name: "a replaced owner goes on",
			good: func(h run) { // it is a zombie
				h.produce(0, "a", "b")
				h.handle("x", 1, 0)
				h.handle("y", 2, 1)
				h.start("x", 1, 1)
				h.Lost("x", orders)
				h.accept("x", 1)
				h.start("x", 1, 1)
				h.accept("x", 1)
			},
			bad: func(h run) {
				h.produce(0, "a", "b")
				h.handle("x", 1, 0)
				h.handle("y", 2, 1)
				h.start("x", 1, 1)
				h.accept("x", 1)
			},
			want: `P-2 fence: offset 1 lane "b": "x" started it with fence 1 after a higher one had been used, and was never reported lost`,
		},
		{
			name: "a start after the partition was given back",
			good: func(h run) {
				h.produce(0, "a", "b")
				h.handle("x", 1, 0)
				h.Revoked("x", orders)
				h.Assigned("x", orders)
				h.handle("x", 1, 1)
			},
			bad: func(h run) {
				h.produce(0, "a", "b")
				h.handle("x", 1, 0)
				h.Revoked("x", orders)
				h.handle("x", 1, 1)
				h.Killed("x")
				h.handle("y", 2, 1)
			},
			want: `P-2 fence: offset 1 lane "b": "x" started it with fence 1 after it had given the partition back`,
		},
		{
			name: "the same owner repeats",
			good: func(h run) {
				h.produce(0, "a")
				h.start("x", 1, 0)
				h.Ended("x", orders, 0, checker.Snoozed)
				h.handle("x", 1, 0)
			},
			bad:  func(h run) { h.produce(0, "a"); h.handle("x", 1, 0, 0) },
			want: `P-3 repeat: offset 0 lane "a": "x" had finished it and started it again`,
		},
		{
			name: "a repeat below the committed offset",
			good: func(h run) {
				h.produce(0, "a", "b")
				h.handle("x", 1, 0, 1)
				h.Committed("x", orders, 1)
				h.Killed("x")
				h.handle("y", 2, 1)
			},
			bad: func(h run) {
				h.produce(0, "a", "b")
				h.handle("x", 1, 0, 1)
				h.Committed("x", orders, 1)
				h.Killed("x")
				h.handle("y", 2, 0)
			},
			want: `P-3 repeat: offset 0 lane "a": "y" started it again although it was finished and offset 1 is committed`,
		},
		{
			name: "a repeat below the committed offset, after a reset",
			good: func(h run) {
				h.produce(0, "a", "a")
				h.handle("x", 1, 0, 1)
				h.Committed("x", orders, 2)
				h.Reset(orders, 0)
				h.handle("x", 1, 0, 1)
				h.Committed("x", orders, 2)
			},
			bad: func(h run) {
				h.produce(0, "a")
				h.handle("x", 1, 0)
				h.Committed("x", orders, 1)
				h.Reset(orders, 0)
				h.handle("x", 1, 0, 0)
				h.Committed("x", orders, 1)
			},
			want: `P-3 repeat: offset 0 lane "a": "x" had finished it and started it again`,
		},
		{
			name: "a reset jumps over records",
			good: func(h run) {
				h.produce(0, "a", "a", "a")
				h.Reset(orders, 2)
				h.handle("x", 1, 2)
				h.Committed("x", orders, 3)
			},
			bad: func(h run) {
				h.produce(0, "a", "a", "a")
				h.Reset(orders, 2)
				h.Reset(orders, 1)
				h.handle("x", 1, 2)
			},
			want: `P-2 order: offset 2 lane "a": "x" started it while offset 1 of its lane was not finished`,
			also: []string{`P-1 lost: offset 1`},
		},
		{
			name: "a reset jumps over records that had been passed",
			good: func(h run) {
				h.produce(0, "a", "a", "a")
				h.handle("x", 1, 2)
				h.Reset(orders, 2)
			},
			bad: func(h run) {
				h.produce(0, "a", "a", "a")
				h.handle("x", 1, 2)
				h.Reset(orders, 1)
			},
			want: `P-2 order: offset 2 lane "a": "x" started it while offset 1 of its lane was not finished`,
			also: []string{`P-1 lost: offset 1`},
		},
		{
			name: "a reset goes back to records that had been skipped",
			good: func(h run) {
				h.produce(0, "a", "a", "a", "a")
				h.Reset(orders, 2)
				h.handle("x", 1, 2)
				h.Reset(orders, 1)
				h.handle("x", 1, 1, 2, 3)
			},
			bad: func(h run) {
				h.produce(0, "a", "a", "a", "a")
				h.Reset(orders, 2)
				h.handle("x", 1, 2)
				h.Reset(orders, 1)
				h.handle("x", 1, 3)
			},
			want: `P-2 order: offset 3 lane "a": "x" started it while offset 1 of its lane was not finished`,
			also: []string{`P-1 lost: offset 1`},
		},
		{
			name: "a reset jumps over records not heard of",
			good: func(h run) { h.Reset(orders, 2); h.produce(0, "a", "a", "a"); h.handle("x", 1, 2) },
			bad:  func(h run) { h.Reset(orders, 1); h.produce(0, "a", "a", "a"); h.handle("x", 1, 2) },
			want: `P-2 order: offset 2 lane "a": "x" started it while offset 1 of its lane was not finished`,
			also: []string{`P-1 lost: offset 1`},
		},
		{
			name: "a repeat after a graceful stop, with exact progress",
			opts: exact,
			good: func(h run) {
				h.produce(0, "a", "b")
				h.handle("x", 1, 1)
				h.Lost("x", orders) // its last commit failed
				h.handle("y", 2, 0, 1)
			},
			bad: func(h run) {
				h.produce(0, "a", "b")
				h.handle("x", 1, 1)
				h.Revoked("x", orders)
				h.handle("y", 2, 0, 1)
			},
			want: `P-3 repeat: offset 1 lane "b": "y" started it again although "x" had finished it and given the partition back in good order`,
		},
		{
			name: "a repeat after a kill of what a commit covered",
			opts: exact,
			good: func(h run) {
				h.produce(0, "a", "b")
				h.Committing("x", orders)
				h.handle("x", 1, 1) // while the commit is under way
				h.Committed("x", orders, 0)
				h.Killed("x")
				h.start("y", 2, 0)
				h.Committing("y", orders)
				h.Committed("y", orders, 0) // says nothing of what x did
				h.start("y", 2, 1)
				h.accept("y", 0, 1)
			},
			bad: func(h run) {
				h.produce(0, "a", "b")
				h.handle("x", 1, 1)
				h.Committing("x", orders)
				h.Committed("x", orders, 0)
				h.Killed("x")
				h.handle("y", 2, 0, 1)
			},
			want: `P-3 repeat: offset 1 lane "b": "y" started it again although "x" had finished it before the last commit`,
		},
		{
			name: "a repeat after two kills",
			opts: exact,
			good: func(h run) { // x and y had 1 unfinished in all that they committed
				h.produce(0, "a", "b")
				h.handle("x", 1, 1)
				h.Killed("x")
				h.start("y", 2, 0)
				h.Committing("y", orders)
				h.Committed("y", orders, 0)
				h.Killed("y")
				h.handle("z", 3, 0, 1)
			},
			bad: func(h run) {
				h.produce(0, "a", "b")
				h.Killed("x")
				h.start("y", 2, 0)
				h.handle("y", 2, 1)
				h.Committing("y", orders)
				h.Committed("y", orders, 0)
				h.Killed("y")
				h.handle("z", 3, 0, 1)
			},
			want: `P-3 repeat: offset 1 lane "b": "z" started it again although "y" had finished it before the last commit`,
		},
		{
			name: "a repeat of what was committed when the owner was replaced, which learns of it late",
			opts: exact,
			good: func(h run) {
				h.produce(0, "a", "b")
				h.handle("x", 1, 1)
				h.start("y", 2, 0)
				h.Committing("y", orders)
				h.Committed("y", orders, 0) // with 1 as unfinished
				h.Lost("x", orders)
				h.accept("y", 0)
				h.handle("y", 2, 1)
			},
			bad: func(h run) {
				h.produce(0, "a", "b")
				h.handle("x", 1, 1)
				h.Committing("x", orders)
				h.Committed("x", orders, 0)
				h.start("y", 2, 0)
				h.Lost("x", orders)
				h.accept("y", 0)
				h.handle("y", 2, 1)
			},
			want: `P-3 repeat: offset 1 lane "b": "y" started it again although "x" had finished it before the last commit`,
		},
		{
			name: "a repeat after a kill of what the commit before the last covered",
			opts: exact,
			good: func(h run) {
				h.produce(0, "a", "b")
				h.handle("x", 1, 1)
				h.Committed("x", orders, 0)
				h.Killed("x")
				h.handle("y", 2, 0, 1)
			},
			bad: func(h run) {
				h.produce(0, "a", "b")
				h.handle("x", 1, 1)
				h.Committed("x", orders, 0)
				h.Committed("x", orders, 0)
				h.Killed("x")
				h.handle("y", 2, 0, 1)
			},
			want: `P-3 repeat: offset 1 lane "b": "y" started it again although "x" had finished it before the last commit`,
		},
		{
			name: "a repeat of what a live owner finished",
			good: func(h run) {
				h.produce(0, "a")
				h.handle("x", 1, 0)
				h.handle("y", 2, 0)
				h.Lost("x", orders)
			},
			bad:  func(h run) { h.produce(0, "a"); h.handle("x", 1, 0); h.handle("y", 2, 0) },
			want: `P-3 repeat: offset 0 lane "a": "y" started it again although "x" had finished it and still held the partition`,
		},
		{
			name: "a repeat of what a live owner with the same fence finished",
			good: func(h run) {
				h.produce(0, "a")
				h.handle("x", 1, 0)
				h.Killed("x")
				h.handle("y", 1, 0)
			},
			bad: func(h run) {
				h.produce(0, "a")
				h.handle("x", 1, 0)
				h.handle("y", 1, 0)
				h.Killed("x")
			},
			want: `P-3 repeat: offset 0 lane "a": "y" started it again although "x" had finished it and still held the partition`,
		},
		{
			name: "a repeat of a dead letter that was seen late",
			good: func(h run) { // x's dead letter, seen while y tries the record again
				h.produce(0, "a")
				h.start("x", 1, 0)
				h.Ended("x", orders, 0, checker.RejectedPending)
				h.Killed("x")
				h.start("y", 2, 0)
				h.Ended("y", orders, 0, checker.Failed)
				h.DeadLettered(orders, 0, "rejected")
				h.start("y", 2, 0)
				h.Ended("y", orders, 0, checker.RejectedPending)
				h.DeadLettered(orders, 0, "rejected")
			},
			bad: func(h run) { // nobody but y ran it
				h.produce(0, "a")
				h.start("y", 2, 0)
				h.Ended("y", orders, 0, checker.Failed)
				h.DeadLettered(orders, 0, "rejected")
				h.start("y", 2, 0)
				h.Ended("y", orders, 0, checker.RejectedPending)
				h.DeadLettered(orders, 0, "rejected")
			},
			want: `P-3 repeat: offset 0 lane "a": "y" had finished it and started it again`,
		},
		{
			name: "a dead letter of before, seen while the record runs again",
			good: func(h run) {
				h.produce(0, "a")
				h.start("x", 1, 0)
				h.Ended("x", orders, 0, checker.RejectedPending)
				h.Killed("x")
				h.start("y", 2, 0)
				h.DeadLettered(orders, 0, "rejected")
				h.Ended("y", orders, 0, checker.Failed)
				h.handle("y", 2, 0)
			},
			bad: func(h run) {
				h.produce(0, "a")
				h.start("x", 1, 0)
				h.Ended("x", orders, 0, checker.RejectedPending)
				h.Killed("x")
				h.start("y", 2, 0)
				h.DeadLettered(orders, 0, "rejected")
				h.Ended("y", orders, 0, checker.Failed)
				h.handle("y", 2, 0, 0)
			},
			want: `P-3 repeat: offset 0 lane "a": "y" had finished it and started it again`,
		},
		{
			name: "more repeats than the run may have",
			opts: checker.Options{MaxRepeats: 1},
			good: func(h run) {
				h.produce(0, "a", "a")
				h.handle("x", 1, 0, 1)
				h.Killed("x")
				h.handle("y", 2, 1)
			},
			bad: func(h run) {
				h.produce(0, "a", "a")
				h.handle("x", 1, 0, 1)
				h.Killed("x")
				h.handle("y", 2, 0, 1)
			},
			want: `P-3 repeat: repeats in the whole run: 2, allowed: 1`,
		},
		{
			name: "any repeat where none is allowed",
			opts: checker.Options{MaxRepeats: -1},
			good: func(h run) { h.produce(0, "a"); h.handle("x", 1, 0); h.Killed("x") },
			bad:  func(h run) { h.produce(0, "a"); h.handle("x", 1, 0); h.Killed("x"); h.handle("y", 2, 0) },
			want: `P-3 repeat: repeats in the whole run: 1, allowed: 0`,
		},
		{
			name: "a dead owner starts",
			good: func(h run) { h.produce(0, "a"); h.handle("x", 1, 0); h.Killed("x") },
			bad:  func(h run) { h.produce(0, "a"); h.handle("x", 1, 0); h.Killed("x"); h.start("x", 2, 0) },
			want: `history: offset 0 lane "a": "x" started it after it had been killed`,
		},
		{
			name: "a dead owner starts in a partition it never had",
			good: func(h run) { h.produce(0, "a"); h.Killed("x"); h.handle("y", 1, 0) },
			bad:  func(h run) { h.produce(0, "a"); h.Killed("x"); h.handle("y", 1, 0); h.start("x", 1, 0) },
			want: `history: offset 0 lane "a": "x" started it after it had been killed`,
		},
		{
			name: "a dead owner is assigned",
			good: func(h run) { h.Assigned("x", orders); h.Killed("x") },
			bad:  func(h run) { h.Killed("x"); h.Assigned("x", orders) },
			want: `history: offset -1: "x" was assigned the partition after it had been killed`,
		},
		{
			name: "an end without a start",
			good: func(h run) { // from one that is dead it is merely late
				h.produce(0, "a")
				h.start("x", 1, 0)
				h.Killed("x")
				h.accept("x", 0)
				h.accept("x", 0)
				h.handle("y", 2, 0)
			},
			bad:  func(h run) { h.produce(0, "a"); h.handle("x", 1, 0); h.accept("x", 0) },
			want: `history: offset 0 lane "a": "x" ended it as accepted without running it`,
		},
		{
			name: "an unknown result",
			good: func(h run) { h.start("x", 1, 0); h.Ended("x", orders, 0, checker.ResultDiscarded) },
			bad:  func(h run) { h.start("x", 1, 0); h.accept("x", 0); h.Ended("x", orders, 0, 99) },
			want: `history: offset 0: "x" ended it with the unknown result 99`,
		},
		{
			name: "a record produced in two lanes",
			good: func(h run) { h.produce(0, "a"); h.produce(0, "a"); h.handle("x", 1, 0) },
			bad:  func(h run) { h.produce(0, "a"); h.produce(0, "b"); h.handle("x", 1, 0) },
			want: `history: offset 0 lane "a": it was produced again, in lane "b"`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			good := newRun(test.opts)
			test.good(good)
			if r := good.Finish(); !r.OK() || r.Suspects != 0 || len(r.Violations) != 0 {
				t.Errorf("the good history is condemned:\n%s", r)
			}
			bad := newRun(test.opts)
			test.bad(bad)
			r := bad.Finish()
			if r.OK() {
				t.Fatalf("the bad history passes:\n%s", r)
			}
			var got []string
			for _, v := range r.Violations {
				got = append(got, strings.Replace(v.String(), "orders/3 ", "", 1))
			}
			if len(got) != 1+len(test.also) || got[0] != test.want {
				t.Errorf("got  %s\nwant %s\nand %q", strings.Join(got, "\n     "), test.want, test.also)
			}
			for i, prefix := range test.also {
				if i+1 < len(got) && !strings.HasPrefix(got[i+1], prefix) {
					t.Errorf("got  %s\nwant %s", got[i+1], prefix)
				}
			}
		})
	}
}

// TestReport tells a history in which everything happens that is allowed, and compares all that is counted.
func TestReport(t *testing.T) {
	t.Parallel()
	h := newRun(checker.Options{})
	h.produce(0, "a", "b", "a", "", "c", "c")
	h.start("x", 1, 0, 1)
	h.accept("x", 0)
	h.start("x", 1, 2)
	h.Ended("x", orders, 2, checker.RejectedPending)
	h.DeadLettered(orders, 2, "rejected")
	h.Lost("x", orders)
	h.start("y", 2, 0, 1) // 0 again; 1 still runs in x
	h.accept("x", 1)
	h.start("x", 1, 3)
	h.Ended("y", orders, 0, checker.Failed)
	h.Started("y", orders, 0, 2, 2)
	h.accept("y", 0, 1)
	h.DeadLettered(orders, 2, "rejected")
	h.start("y", 2, 3)
	h.Ended("y", orders, 3, checker.RejectedPending)
	h.Discarded(orders, 3, "too old")
	h.Committed("y", orders, 4)
	h.Committed("x", orders, 1)
	h.Reset(orders, 5)
	h.handle("y", 2, 5, 9)
	h.Committed("y", orders, 10)

	want := checker.Report{
		Final: true, Partitions: 1, Produced: 6, Unproduced: 1, Handled: 6, Attempts: 10, Running: 1, MaxDelivery: 2,
		Results:  map[string]int64{"accepted": 6, "failed": 1, "rejected": 2},
		Repeated: 1, Repeats: map[string]int64{"lost": 1},
		DeadLetters: map[string]int64{"rejected": 1}, DuplicateDeadLetters: 1,
		Discards: map[string]int64{"too old": 1}, Skipped: 1,
		Overlaps: 2, ZombieStarts: 1, LateSettles: 1, LateCommits: 1,
		Violations: []checker.Violation{},
	}
	r := h.Finish()
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	const text = `produced          6
handled           6 (attempts 10, running 1)
repeated          1 (lost 1)
dead letters      1 (rejected 1)
discarded         1 (too old 1)
unproduced        1
duplicate letters 1
skipped           1
overlaps          2
zombie starts     1
late settles      1
late commits      1
lost              0
order violations  0 (fences 0)
bad commits       0 (regressions 0)
bad repeats       0
all promises kept`
	if diff := cmp.Diff(text, r.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{`"dead_letters":{"rejected":1}`, `"order_violations":0`, `"violations":[]`} {
		if !strings.Contains(string(data), field) {
			t.Errorf("JSON lacks %s: %s", field, data)
		}
	}
}

// TestSnapshot: a report before the end leaves losses and suspects open, and making one changes nothing.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	h := newRun(checker.Options{})
	h.produce(0, "a", "a")
	h.handle("x", 1, 1)
	r := h.Report()
	if !r.OK() || r.Suspects != 1 || r.Final || !strings.HasSuffix(r.String(), "no promise broken so far") {
		t.Errorf("before the end:\n%s", r)
	}
	first := h.Finish()
	if first.OrderViolations != 1 || first.Lost != 1 || first.Suspects != 0 {
		t.Errorf("at the end:\n%s", first)
	}
	if diff := cmp.Diff(first, h.Finish()); diff != "" {
		t.Errorf("the second end differs:\n%s", diff)
	}
	h.DeadLettered(orders, 0, "key")
	if r := h.Finish(); !r.OK() {
		t.Errorf("after the dead letter:\n%s", r)
	}
}

// TestMaxViolations: the first are listed, all are counted, whatever order partitions came in.
func TestMaxViolations(t *testing.T) {
	t.Parallel()
	c := checker.New(checker.Options{MaxViolations: 3})
	for _, partition := range []int32{2, 0, 1} {
		for offset := range int64(2) {
			c.Produced(checker.Partition{Topic: "orders", Partition: partition}, offset, "")
		}
	}
	r := c.Finish()
	if r.Lost != 6 || len(r.Violations) != 3 {
		t.Fatalf("lost %d, listed %d", r.Lost, len(r.Violations))
	}
	for i, want := range []string{"orders/0 offset 0", "orders/0 offset 1", "orders/1 offset 0"} {
		if got := r.Violations[i].String(); !strings.Contains(got, want) {
			t.Errorf("violation %d: %s, want %s", i, got, want)
		}
	}
	if !strings.HasSuffix(r.String(), "and 3 more\nPROMISES BROKEN") {
		t.Errorf("text:\n%s", r)
	}
}

// TestPartitionsAreKeptApart: a partition's trouble is not another's.
func TestPartitionsAreKeptApart(t *testing.T) {
	t.Parallel()
	h := newRun(checker.Options{})
	other := checker.Partition{Topic: "orders", Partition: 4}
	h.produce(0, "a", "a")
	h.Produced(other, 0, "a")
	h.start("x", 5, 0)
	h.Started("x", other, 0, 1, 1)
	h.Lost("x", other)
	h.Started("y", other, 0, 1, 2)
	h.Ended("y", other, 0, checker.Accepted)
	h.accept("x", 0)
	h.handle("x", 5, 1)
	if r := h.Finish(); !r.OK() || r.Partitions != 2 || r.Overlaps != 1 {
		t.Errorf("%s", r)
	}
}

// TestConcurrent has many owners work on many partitions at once, with rebalances and kills, each partition behind a
// lock as a queue would have it, and reports in between. It must be quiet under the race detector, and the reports of
// two runs that agree on each partition's events must agree.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	const partitions, records = 8, 2000
	tell := func(sideBySide bool) checker.Report {
		c := checker.New(checker.Options{MaxViolations: 20})
		var group sync.WaitGroup
		for number := range int32(partitions) {
			work := func() {
				random := rand.New(rand.NewPCG(1, uint64(number)))
				p := checker.Partition{Topic: "t", Partition: number}
				owner, fence := fmt.Sprintf("owner-%d", number), int64(1)
				for offset := range int64(records) {
					c.Produced(p, offset, fmt.Sprint("lane-", random.IntN(50)))
					c.Started(owner, p, offset, 1, fence)
					switch random.IntN(40) {
					case 0:
						c.Killed(owner)
						fence++
						owner = fmt.Sprintf("owner-%d-%d", number, fence)
						c.Started(owner, p, offset, 2, fence)
					case 1:
						c.Started(owner, p, offset, 1, fence) // twice at once
						c.Ended(owner, p, offset, checker.Failed)
					case 2:
						c.Lost(owner, p)
						fence++
						c.Started(owner, p, offset, 2, fence)
					}
					c.Ended(owner, p, offset, checker.Accepted)
					if offset%100 == 0 {
						c.Committed(owner, p, offset+1)
						c.Report()
					}
				}
			}
			if sideBySide {
				group.Go(work)
			} else {
				work()
			}
		}
		group.Wait()
		return c.Finish()
	}
	first, second := tell(true), tell(false)
	if first.OrderViolations == 0 || first.Handled != partitions*records || first.Overlaps == 0 {
		t.Errorf("nothing happened:\n%s", first)
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("reports differ:\n%s", diff)
	}
}

// TestCallsOfOnePartitionAtOnce lets all methods run at the same time on one partition, for the race detector.
func TestCallsOfOnePartitionAtOnce(t *testing.T) {
	t.Parallel()
	h := newRun(checker.Options{})
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			owner := fmt.Sprint("owner-", worker)
			for offset := range int64(300) {
				h.Produced(orders, offset, "a")
				h.Assigned(owner, orders)
				h.start(owner, offset, offset)
				h.DeadLettered(orders, offset, "r")
				h.Discarded(orders, offset, "r")
				h.Ended(owner, orders, offset, checker.RejectedPending)
				h.Committing(owner, orders)
				h.Committed(owner, orders, offset)
				switch offset % 50 {
				case 10:
					h.Lost(owner, orders)
				case 20:
					h.Revoked(owner, orders)
				case 30:
					h.Reset(orders, offset)
				case 40:
					h.Stopped(owner)
				case 49:
					_ = h.Finish().String()
				}
			}
			h.Killed(owner)
		})
	}
	group.Wait()
	if r := h.Finish(); r.Attempts != 1200 || r.Handled != 300 || r.Running != 0 {
		t.Errorf("%s", r)
	}
}
