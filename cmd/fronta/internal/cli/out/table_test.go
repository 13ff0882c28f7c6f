package out_test

import (
	"strings"
	"testing"

	"github.com/fronta-mq/fronta/cmd/fronta/internal/cli/out"
)

func TestTable(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	out.Table(&b,
		[]string{"topic", "lag", "heads", "who"},
		[]string{"orders", "1,200", ">= 3", "ř\x1b[2J"},
		[]string{"o", "7", "-", "-"},
	)
	want := "" +
		"topic     lag  heads  who\n" +
		"orders  1,200   >= 3  ř\uFFFD[2J\n" +
		"o           7      -  -\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
	b.Reset()
	out.Table(&b)
	if b.Len() > 0 {
		t.Errorf("no rows: %q", b.String())
	}
}

func TestClean(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"orders": "orders", "a\nb": "a\uFFFDb", "\x1b[2J": "\uFFFD[2J", "řeřicha": "řeřicha", "a\u202eb": "a\uFFFDb", "\xff": "\uFFFD",
	} {
		if got := out.Clean(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}
