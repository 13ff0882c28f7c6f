// Package demo is a shop's day in a few seconds: orders of a few hundred customers go through a queue in the order of each
// customer, while things go wrong. Every event is told to a checker, and the summary says what the checker found.
//
// What must stay true: the summary claims nothing that was not checked. What was produced is known from the brokers'
// acknowledgements, what was handled from the handler, what was committed from the brokers, and what was given up from the
// dead-letter topic.
package demo

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/deadletter"
)

// Options say how big the day is.
type Options struct {
	Records    int           // orders
	Customers  int           // keys
	Partitions int           // of the orders' topic
	Duration   time.Duration // in which the orders come in; all other times follow it
}

// Concurrency is how many orders a member handles at once.
const Concurrency = 128

// What happens when, in parts of Options.Duration.
const (
	joinAt   = 0.25 // a second member joins
	outageAt = 0.35 // payments of one customer begin to fail
	outage   = 0.25 // for so long
	leaveAt  = 0.70 // the second member leaves

	firstRetry  = 1.0 / 60
	slowestTry  = 1.0 / 9
	refusedAt   = 0.15 // an order that can never be handled, and says so
	brokenAt    = 0.75 // one that makes the handler panic
	unluckyAt   = 0.40 // makes sure that the outage is felt
	maxAttempts = 8
)

// order is the value of a record; its key is the customer.
type order struct {
	ID       int    `json:"id"`
	Customer string `json:"customer"`
	Cents    []int  `json:"cents"` // the price of each item
}

// plan is who orders what. It depends on the options alone.
type plan struct {
	Options
	random *rand.Rand
	expect map[int]deadletter.Reason // the orders that have to become dead letters
}

func newPlan(o Options) *plan {
	return &plan{Options: o, random: rand.New(rand.NewPCG(2, 3)), expect: map[int]deadletter.Reason{
		o.at(refusedAt): deadletter.Rejected,
		o.at(brokenAt):  deadletter.Panic,
	}}
}

// at is the number of the order that comes in after this part of the day.
func (o Options) at(part float64) int { return int(part * float64(o.Records)) }

// after is this part of the day.
func (o Options) after(part float64) time.Duration { return time.Duration(part * float64(o.Duration)) }

func (o Options) customer(i int) string { return fmt.Sprintf("customer-%03d", i) }

// unlucky is the customer whose payments fail for a while.
func (o Options) unlucky() string { return o.customer(o.Customers / 3) }

// order makes the order of this number. Call it for 0, 1, 2 …
func (p *plan) order(id int) order {
	o := order{ID: id, Customer: p.customer(p.random.IntN(p.Customers))}
	for range 1 + p.random.IntN(3) {
		o.Cents = append(o.Cents, 100+p.random.IntN(9900))
	}
	switch {
	case p.expect[id] == deadletter.Rejected:
		o.Cents[0] = -o.Cents[0]
	case p.expect[id] == deadletter.Panic:
		o.Cents = nil
	case id == p.at(unluckyAt):
		o.Customer = p.unlucky()
	}
	return o
}

func (o order) value() []byte {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err) // integers and text always can
	}
	return b
}

// slow says whether a customer's orders take long: one customer in twenty.
func (o Options) slow(customer string) bool {
	return customer[len(customer)-1] == '5' && (customer[len(customer)-2]-'0')%2 == 1 && customer != o.unlucky()
}

// work is how long the handler takes for an order: so long that the day's work fits into the day with room to spare, for
// each customer, whose orders go one after another, and for a member.
func (o Options) work(of order) time.Duration {
	most := 40 * time.Millisecond
	each := o.Duration / time.Duration(4*(1+o.Records/o.Customers))
	all := o.Duration * Concurrency / 2 / time.Duration(o.Records)
	if o.slow(of.Customer) {
		most, each, all = 300*time.Millisecond, 2*each, 10*all
	}
	most = min(most, each, all)
	return most/2 + most*time.Duration(of.ID%100)/200
}

// retry gives a record of the unlucky customer more time than the outage takes, however the random parts fall: its eighth
// attempt comes at the earliest after 0.8 × (1 + 2 + 4 + 3 × 6.67) / 60 + … of the day.
func (o Options) retry() fronta.RetryPolicy {
	return fronta.ExponentialBackoff{Initial: o.after(firstRetry), Max: o.after(slowestTry)}
}
