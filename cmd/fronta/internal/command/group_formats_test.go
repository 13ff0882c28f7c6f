package command_test

import (
	"testing"

	"github.com/fronta-mq/fronta/cmd/fronta/internal/group"
	"github.com/fronta-mq/fronta/progress"
)

// What other libraries have stored is read as well.
func TestGroupDescribeOtherFormats(t *testing.T) {
	b := setup(t)
	b.produce(0, 20)
	b.produce(1, 20)
	b.commit(0, 5, "AQICAulV0Ao") // Atleon: 6 and 8 are done
	b.commit(1, 7, "bAAGMgA=")    // Parallel Consumer: 7, 9 and 10 are not done of 7 to 12
	d, _ := b.describe(0, "billing")
	for i, want := range []struct {
		format              progress.Format
		horizon, unfinished int64
	}{
		{progress.AtleonV1, 9, 2 + 11},
		{progress.ParallelConsumer, 13, 3 + 7},
	} {
		p := d.Partitions[i]
		if p.Format != want.format || p.Verdict != group.Trusted || p.Progress.Horizon != want.horizon || *p.UnfinishedMin != want.unfinished || !p.UnfinishedExact {
			t.Errorf("%+v, %+v", p, p.Progress)
		}
	}
}
