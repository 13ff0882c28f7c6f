package queue

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fronta-mq/fronta/progress"
)

// laneOf spreads key numbers over the 64 bits as a hash function would.
func laneOf(key int) Lane {
	x := uint64(key) + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return max(1, Lane(x^x>>31))
}

// An order says how the records of a benchmark fall into lanes.
type order struct {
	name string
	lane func(offset int64) Lane
}

var (
	unordered = order{"unordered", func(int64) Lane { return Alone }}
	distinct  = order{"keys=all", func(offset int64) Lane { return laneOf(int(offset)) }}
	tenK      = order{"keys=10000", func(offset int64) Lane { return laneOf(int(offset % 10_000)) }}
	oneLane   = order{"keys=1", func(int64) Lane { return 1 }}
)

var sizes = []int{1_000, 100_000, 1_000_000}

// ratios reports, beside the cost of a benchmark, how it compares with the
// cost of the first benchmark of the same order.
type ratios map[string]float64

func (r ratios) report(b *testing.B, name string, unfinished int, took time.Duration) {
	ns := float64(took) / float64(b.N)
	b.ReportMetric(ns, "ns/op")
	if unfinished == sizes[0] {
		r[name] = ns
	}
	if first := r[name]; first > 0 {
		b.ReportMetric(ns/first, "ratio")
	}
}

// H-103, H-145: what one settle costs must not depend on how many records are
// unfinished.
//
// "consume" is the work of a consumer: 1,000 records run at once and are
// settled in random order; each is followed by a Take and an Admit, so that
// the number of unfinished records stays. "drain" hands out everything first
// and measures Finish alone, in random order over all: nothing of a record is
// in the processor's caches any more when its turn comes, and what is left of
// the ratio is the memory's latency.
func BenchmarkSettle(b *testing.B) {
	consume, drain := ratios{}, ratios{}
	for _, o := range []order{unordered, tenK, distinct} {
		for _, n := range sizes {
			b.Run(fmt.Sprintf("consume/%s/unfinished=%d", o.name, n), func(b *testing.B) {
				const atOnce = 1_000
				p := New(0)
				admit := func() { p.Admit(p.Horizon(), o.lane(p.Horizon())) }
				for range n {
					admit()
				}
				running := make([]Slot, 0, atOnce)
				take := func() {
					for len(running) < atOnce {
						s, ok := p.Take()
						if !ok {
							// All others are behind one that runs.
							return
						}
						running = append(running, s)
					}
				}
				take()
				random := rand.New(rand.NewPCG(1, 2))
				picks := make([]uint16, 1<<16)
				for i := range picks {
					picks[i] = uint16(random.Uint32())
				}
				turn := func(i int) {
					last := len(running) - 1
					pick := int(picks[i&(len(picks)-1)]) * len(running) >> 16
					s := running[pick]
					running[pick] = running[last]
					running = running[:last]
					if !p.Finish(s) {
						b.Fatal("not running")
					}
					admit()
					take()
				}
				for i := range 2 * n {
					turn(i)
				}
				start := time.Now()
				b.ResetTimer()
				for i := range b.N {
					turn(i)
				}
				consume.report(b, o.name, n, time.Since(start))
			})
		}
	}
	for _, o := range []order{unordered, distinct} {
		for _, n := range sizes {
			b.Run(fmt.Sprintf("drain/%s/unfinished=%d", o.name, n), func(b *testing.B) {
				p := New(0)
				random := rand.New(rand.NewPCG(1, 2))
				running := make([]Slot, 0, n)
				var took time.Duration
				for left := b.N; left > 0; {
					for len(running) < n {
						p.Admit(p.Horizon(), o.lane(p.Horizon()))
						s, ok := p.Take()
						if !ok {
							b.Fatal("nothing is ready")
						}
						running = append(running, s)
					}
					random.Shuffle(n, func(i, j int) { running[i], running[j] = running[j], running[i] })
					batch := min(left, n)
					start := time.Now()
					for _, s := range running[:batch] {
						if !p.Finish(s) {
							b.Fatal("not running")
						}
					}
					took += time.Since(start)
					left -= batch
					running = running[:copy(running, running[batch:])]
				}
				drain.report(b, o.name, n, took)
			})
		}
	}
}

// BenchmarkAdmitTakeFinish is the way of a record whose handler does nothing:
// fetched in batches of 1,000, up to 256 running.
func BenchmarkAdmitTakeFinish(b *testing.B) {
	for _, o := range []order{tenK, unordered, oneLane} {
		b.Run(o.name, func(b *testing.B) {
			const batch, atOnce = 1_000, 256
			lanes := make([]Lane, 10_000)
			for i := range lanes {
				lanes[i] = o.lane(int64(i))
			}
			p := New(0)
			var running [atOnce]Slot
			b.ReportAllocs()
			next := 0
			for left := b.N; left > 0; left -= batch {
				for range batch {
					p.Admit(p.Horizon(), lanes[next])
					if next++; next == len(lanes) {
						next = 0
					}
				}
				for p.Len() > 0 {
					n := 0
					for n < atOnce {
						s, ok := p.Take()
						if !ok {
							break
						}
						running[n] = s
						n++
					}
					for _, s := range running[:n] {
						p.Finish(s)
					}
				}
			}
		})
	}
}

// BenchmarkSnapshot is what a commit costs under the owner's lock, and Fill
// what it costs beside it. A tenth of the records has failed before.
func BenchmarkSnapshot(b *testing.B) {
	for _, o := range []order{unordered, tenK, distinct} {
		for _, n := range []int{1_000, 10_000, 100_000, 1_000_000} {
			p := New(0)
			for range n {
				// Every third record of those that were read is finished.
				s, _ := p.Admit(p.Horizon(), o.lane(p.Horizon()))
				if p.Horizon()%3 == 0 {
					p.Advance(p.Horizon() + 1)
				}
				p.SetAttempts(s, int(s)%10/9)
			}
			var s Snapshot
			for _, exact := range []bool{false, true} {
				name := fmt.Sprintf("%s/unfinished=%d/exact=%v", o.name, n, exact)
				b.Run("lock/"+name, func(b *testing.B) {
					b.ReportAllocs()
					for range b.N {
						p.Snapshot(&s, exact)
					}
				})
				b.Run("fill/"+name, func(b *testing.B) {
					p.Snapshot(&s, exact)
					b.ReportAllocs()
					for range b.N {
						s.Fill()
					}
				})
			}
		}
	}
}

// BenchmarkRecall is what reading again costs for each record: one that is
// finished, and one that is unfinished, with admitting, taking and finishing
// it.
func BenchmarkRecall(b *testing.B) {
	for _, heads := range []int64{100, 10_000, 1_000_000} {
		segment := Segment{End: 1 << 60}
		for i := range heads {
			segment.Heads = append(segment.Heads, progress.Range{From: 2 * i, To: 2*i + 1})
		}
		learn := func() *Partition {
			p := Resume(0, []Segment{segment})
			for i := range heads {
				p.Recall(2*i, laneOf(int(i)), 0)
				p.Admit(2*i, laneOf(int(i)))
				s, _ := p.Take()
				p.Finish(s)
			}
			return p
		}
		b.Run(fmt.Sprintf("learn/heads=%d", heads), func(b *testing.B) {
			for left := b.N; left > 0; left -= int(heads) {
				learn()
			}
		})
		b.Run(fmt.Sprintf("finished/heads=%d", heads), func(b *testing.B) {
			p := learn()
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				if p.Recall(p.Horizon(), laneOf(-1-i&0xffff), 0) != Finished {
					b.Fatal("not finished")
				}
			}
		})
		b.Run(fmt.Sprintf("unfinished/heads=%d", heads), func(b *testing.B) {
			p := learn()
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				lane, offset := laneOf(i%int(heads)), p.Horizon()
				if p.Recall(offset, lane, 0) != Unfinished {
					b.Fatal("finished")
				}
				p.Admit(offset, lane)
				s, _ := p.Take()
				p.Finish(s)
			}
		})
	}
}
