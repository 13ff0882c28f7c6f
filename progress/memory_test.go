package progress_test

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/fronta-mq/fronta/progress"
)

// allocated is how many bytes f allocates. Nothing must run beside it.
func allocated(f func()) int {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	least := math.MaxInt
	for range 8 { // the runtime allocates now and then, and pools forget
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		least = min(least, int(after.TotalAlloc-before.TotalAlloc))
	}
	return least
}

// header is the binary form up to what the flags say, about offset 100.
func header(flags uint64) []byte {
	var e progress.Encoder
	text, _ := e.Append(nil, &progress.Progress{Offset: 100, Epoch: -1, Suspect: -1}, about, progress.Limit{Units: plenty})
	b := progress.Data(string(text))
	return append(binary.AppendUvarint(slices.Clone(b[:5]), flags), b[6:]...)
}

// The flags of the binary form.
const (
	clean = 1 << iota
	segments
	steady
	marked
	attempted
	started
	reaching
	_
	suspicious
	crashed
)

func uvarints(b []byte, values ...uint64) []byte {
	for _, v := range values {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

// greedy are texts that make as much as they can of few bytes.
func greedy(t *testing.T) map[string]string {
	t.Helper()
	var e progress.Encoder
	texts := make(map[string]string)
	add := func(name, text string) {
		for texts[name] != "" {
			name += "'"
		}
		texts[name] = text
	}
	own := func(name string, b []byte) {
		b = progress.Seal(b)
		add(name, progress.ASCII(b))
		add(name+", wide", progress.Wide(b))
	}
	sizes := []int{100, 3000, 20000}
	if testing.Short() {
		sizes = sizes[:2]
	}
	for _, n := range sizes {
		every := set(100, slices.Repeat([]int64{1}, 2*64*n)...)
		for _, l := range []progress.Limit{{Units: n}, {Units: n, ASCII: true}} {
			text, _ := e.Append(nil, every, about, l)
			add("every second", string(text))
			p := clone(t, every)
			for _, h := range p.Segments[0].Heads {
				p.Segments[0].Markers = append(p.Segments[0].Markers, h.From)
				p.Attempts = append(p.Attempts, progress.Count{Offset: h.From, N: 1})
			}
			text, _ = e.Append(nil, p, about, l)
			add("every second a marker", string(text))
		}
		b := header(segments)
		for range n {
			b = append(b, 1<<4, 0) // key, more; one offset
		}
		own("many segments", uvarints(append(b, 0, 0), 0, 0))
		own("many segments that do not end", b)
		b = header(segments)
		for range n / 3 {
			b = append(b, 4|1<<4, 1, 'x', 0)
		}
		own("many segments with names", uvarints(append(b, 0, 0), 0, 0))
		b = header(crashed)
		own("many crashes", append(uvarints(b, uint64(n)-1), make([]byte, 2*n)...))
		add("stride", atleon(100, append(uvarints([]byte{1}, uint64(64*n), 0, 2, uint64(64*n)), make([]byte, 0)...)...))
		add("short strides", atleon(100, append(uvarints([]byte{1}, uint64(3*n)), []byte(strings.Repeat("\x02\x03\x02", n))...)...))
		add("runs", parallel('n', []byte(strings.Repeat("\x00\x01", n))...))
		add("bits", parallel('o', append(binary.BigEndian.AppendUint32(nil, uint32(8*n)), append([]byte(strings.Repeat("\x55", n)), 0)...)...))
		add("packed bits", parallel('s', packed(t, append(binary.BigEndian.AppendUint32(nil, uint32(8*n)), append([]byte(strings.Repeat("\x55", n)), 0)...))...))
	}
	for _, claim := range []uint64{1 << 20, 1 << 31, 1 << 62} {
		b := uvarints(append(header(segments), 0), claim) // one segment of so many offsets
		own("claimed heads", uvarints(slices.Clone(b), claim, claim))
		own("claimed ranges", uvarints(slices.Clone(b), claim/2, claim/2-2))
		own("claimed ranges and some data", append(uvarints(slices.Clone(b), claim/2, claim/2-2), make([]byte, 100)...))
		b = uvarints(append(header(segments|marked), 0), claim)
		own("claimed markers", uvarints(b, claim, 0, claim))
		b = uvarints(append(header(segments|attempted), 0), claim)
		own("claimed attempts", uvarints(b, claim, 0, claim, claim))
		own("claimed crashes", uvarints(header(crashed), claim))
	}
	zero := make([]byte, 16<<20)
	for _, n := range []int{1 << 10, 1 << 16, 1 << 20, 16 << 20} {
		add("zeros", parallel('a', packed(t, zero[:n])...))
		add("zeros, unsaid", parallel('a', streamed(t, zero[:n])...))
		add("zeros as bits", parallel('s', packed(t, append(binary.BigEndian.AppendUint32(nil, uint32(8*(n-5))), zero[:n-4]...))...))
	}
	// A frame that claims a content of 2^40 bytes, and a window of 2 GiB.
	add("claimed content", parallel('a', append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0}, binary.LittleEndian.AppendUint64(nil, 1<<40)...)...))
	add("claimed window", parallel('a', 0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x01, 0, 0))
	r := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 4096)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	add("noise", string(noise))
	add("noise in base64", base64.StdEncoding.EncodeToString(noise))
	add("plain", strings.Repeat("a", 32767))
	add("JSON", "["+strings.Repeat("[", 10000)+strings.Repeat("]", 10001))
	return texts
}

// What Decode allocates is bounded by the length of the text, not by what the
// text claims.
func TestAllocations(t *testing.T) {
	// The decompressor keeps its window, once for all.
	if _, _, err := progress.Decode(parallel('J', streamed(t, slices.Repeat([]byte{0, 1}, 200))...), 0, about); err != nil {
		t.Fatal(err)
	}
	worst := 0.0
	for name, text := range greedy(t) {
		limit := 1200*len(text) + 1024
		if b, err := base64.StdEncoding.DecodeString(text); err == nil && len(b) > 0 && strings.IndexByte("aJsp", b[0]) >= 0 {
			limit = 2000*len(text) + 150<<10
		}
		var err error
		n := allocated(func() { _, _, err = progress.Decode(text, 100, about) })
		if strings.HasPrefix(name, "claimed") {
			limit = 8 << 10
		}
		worst = max(worst, float64(n)/float64(limit))
		if n > limit {
			t.Errorf("%s: %d bytes for a text of %d, limit %d (%v)", name, n, len(text), limit, err)
		}
		// Inspect may do it again.
		if testing.Short() {
			continue
		}
		if n := allocated(func() { progress.Inspect(text, 100) }); n > 2*limit {
			t.Errorf("%s: Inspect took %d bytes for a text of %d", name, n, len(text))
		}
	}
	t.Logf("at worst %.2f of the limit", worst)
}

// Encoding into memory that is there allocates nothing.
func TestEncodeAllocatesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for name, p := range kinds(r, 20_000) {
		p.Attempts = []progress.Count{{Offset: p.Offset, N: 3}}
		p.Crashes = []progress.Count{{Offset: p.Offset, N: 1}}
		p.Segments[0].Markers = []int64{p.Offset}
		for _, units := range []int{0, 40, 100, 4096, plenty} {
			var e progress.Encoder
			l := progress.Limit{Units: units}
			dst, _ := e.Append(nil, p, about, l)
			if n := testing.AllocsPerRun(3, func() { dst, _ = e.Append(dst[:0], p, about, l) }); n > 0 {
				t.Errorf("%s, %+v: %v allocations", name, l, n)
			}
		}
	}
	if n := testing.AllocsPerRun(100, func() { progress.Bound(1_000_000, 5000) }); n > 0 {
		t.Errorf("Bound: %v allocations", n)
	}
}
