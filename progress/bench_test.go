package progress_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/fronta-mq/fronta/progress"
)

// The sets that fill 4,096 units.
var full = []struct {
	share  float64
	window int
}{{0.01, 740_000}, {0.1, 129_000}, {0.5, 61_000}}

func BenchmarkEncode(b *testing.B) {
	for _, c := range full {
		b.Run(fmt.Sprintf("share=%v", c.share), func(b *testing.B) {
			p := random(rand.New(rand.NewPCG(1, 2)), c.window, c.share, 4_821_337_905)
			var e progress.Encoder
			var text []byte
			var fit progress.Fit
			b.ReportAllocs()
			for b.Loop() {
				text, fit = e.Append(text[:0], p, about, progress.Limit{Units: 4096})
			}
			b.ReportMetric(float64(fit.Units), "units")
			b.ReportMetric(float64(fit.LeftOutHeads), "left-out")
		})
	}
	b.Run("stuck=1", func(b *testing.B) {
		p := set(4_821_337_905, 1, 1_000_000)
		var e progress.Encoder
		var text []byte
		b.ReportAllocs()
		for b.Loop() {
			text, _ = e.Append(text[:0], p, about, progress.Limit{Units: 4096})
		}
	})
}

// BenchmarkEncodeTooMuch is of sets that have to be cut.
func BenchmarkEncodeTooMuch(b *testing.B) {
	for _, c := range full {
		b.Run(fmt.Sprintf("share=%v", c.share), func(b *testing.B) {
			p := random(rand.New(rand.NewPCG(1, 2)), 2*c.window, c.share, 4_821_337_905)
			var e progress.Encoder
			var text []byte
			b.ReportAllocs()
			for b.Loop() {
				text, _ = e.Append(text[:0], p, about, progress.Limit{Units: 4096})
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, c := range full {
		b.Run(fmt.Sprintf("share=%v", c.share), func(b *testing.B) {
			p := random(rand.New(rand.NewPCG(1, 2)), c.window, c.share, 4_821_337_905)
			var e progress.Encoder
			text, _ := e.Append(nil, p, about, progress.Limit{Units: 4096})
			s := string(text)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := progress.Decode(s, p.Offset, about); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkBound(b *testing.B) {
	for _, c := range full {
		b.Run(fmt.Sprintf("share=%v", c.share), func(b *testing.B) {
			heads := int64(c.share * float64(c.window))
			b.ReportAllocs()
			for b.Loop() {
				progress.Bound(int64(c.window), heads)
			}
		})
	}
}
