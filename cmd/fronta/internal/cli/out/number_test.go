package out_test

import (
	"testing"

	"github.com/fronta-mq/fronta/cmd/fronta/internal/cli/out"
)

func TestCount(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{
		0: "0", 7: "7", 999: "999", 1000: "1,000", 123456: "123,456", 1234567: "1,234,567", -1000: "-1,000", -100: "-100",
	} {
		if got := out.Count(n); got != want {
			t.Errorf("Count(%d) = %q, want %q", n, got, want)
		}
	}
}
