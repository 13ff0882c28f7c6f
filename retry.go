package fronta

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// RetryPolicy says how long a record waits between attempts. Only its lane
// waits with it; it holds neither a goroutine nor a place in Concurrency.
type RetryPolicy interface {
	// Delay is the wait after a failed attempt. r.DeliveryCount is the number
	// of the attempt that failed, 1 for the first; err is what it returned. A
	// delay below zero counts as zero. Delay is called from many goroutines.
	Delay(r *Record, err error) time.Duration
}

// ExponentialBackoff waits longer after every attempt: Initial, then Factor
// times as long each time, up to Max.
//
// Of each delay a random part is taken away, so that records that failed
// together do not all come back together. It is never added to: no delay is
// above Max.
type ExponentialBackoff struct {
	Initial time.Duration // default 1 s
	Max     time.Duration // default 5 min
	Factor  float64       // default 2; at least 1
	Jitter  float64       // the largest part taken away, 0 to 1; default 0.2; below 0: none
}

// Delay implements [RetryPolicy].
func (b ExponentialBackoff) Delay(r *Record, _ error) time.Duration {
	b = b.withDefaults()
	d := float64(b.Initial) * math.Pow(b.Factor, float64(max(r.DeliveryCount, 1)-1))
	d = min(d, float64(b.Max))
	if b.Jitter > 0 {
		d -= d * b.Jitter * rand.Float64()
	}
	return time.Duration(d)
}

func (b ExponentialBackoff) withDefaults() ExponentialBackoff {
	if b.Initial == 0 {
		b.Initial = time.Second
	}
	if b.Max == 0 {
		b.Max = max(5*time.Minute, b.Initial)
	}
	if b.Factor == 0 {
		b.Factor = 2
	}
	if b.Jitter == 0 {
		b.Jitter = 0.2
	}
	return b
}

func (b ExponentialBackoff) validate() error {
	switch d := b.withDefaults(); {
	case d.Initial < 0:
		return fmt.Errorf("ExponentialBackoff.Initial is %s: a delay can't be negative", b.Initial)
	case d.Max < d.Initial:
		return fmt.Errorf("ExponentialBackoff.Max (%s) is below Initial (%s)", b.Max, d.Initial)
	case !(d.Factor >= 1): // NaN too
		return fmt.Errorf("ExponentialBackoff.Factor is %v: it must be at least 1", b.Factor)
	case d.Jitter > 1 || d.Jitter != d.Jitter:
		return fmt.Errorf("ExponentialBackoff.Jitter is %v: it must be at most 1", b.Jitter)
	}
	return nil
}

// ConstantBackoff waits the same after every attempt.
type ConstantBackoff time.Duration

// Delay implements [RetryPolicy].
func (b ConstantBackoff) Delay(*Record, error) time.Duration { return time.Duration(b) }

func (b ConstantBackoff) validate() error {
	if b < 0 {
		return fmt.Errorf("ConstantBackoff is %s: a delay can't be negative", time.Duration(b))
	}
	return nil
}

// BackoffSteps waits as listed: the first delay after the first attempt, and
// so on; the last one is used for all further attempts. It must not be empty.
type BackoffSteps []time.Duration

// Delay implements [RetryPolicy].
func (b BackoffSteps) Delay(r *Record, _ error) time.Duration {
	if len(b) == 0 {
		return 0
	}
	return b[min(max(r.DeliveryCount, 1), len(b))-1]
}

func (b BackoffSteps) validate() error {
	if len(b) == 0 {
		return fmt.Errorf("BackoffSteps is empty: list at least one delay")
	}
	for i, d := range b {
		if d < 0 {
			return fmt.Errorf("BackoffSteps[%d] is %s: a delay can't be negative", i, d)
		}
	}
	return nil
}

// RetryFunc is a function as a [RetryPolicy].
type RetryFunc func(r *Record, err error) time.Duration

// Delay calls f.
func (f RetryFunc) Delay(r *Record, err error) time.Duration { return f(r, err) }

func (f RetryFunc) validate() error {
	if f == nil {
		return fmt.Errorf("RetryFunc is nil")
	}
	return nil
}
