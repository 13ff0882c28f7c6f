package progress_test

import (
	"fmt"

	"github.com/fronta-mq/fronta/progress"
)

// The metadata of a commit of offset 4711, for the partition of topic "orders"
// that the program knows by its id.
func ExampleDecode() {
	orders := progress.Binding{TopicID: [16]byte{0xe5, 0x9b, 0x79, 0x2e}, Partition: 3}

	// What a consumer stored whose record 4711 and the last of the next 2,000
	// are not finished, in the order of keys.
	stored := progress.Progress{
		Offset: 4711, Epoch: 5, Fence: 17, Suspect: -1,
		Segments: []progress.Segment{{
			End: 6712, Order: "key", Check: 0x1b0c,
			Heads: []progress.Range{{From: 4711, To: 4712}, {From: 6711, To: 6712}},
		}},
	}
	var e progress.Encoder
	text, _ := e.Append(nil, &stored, orders, progress.Limit{Units: 4096})
	fmt.Println(string(text))

	p, format, err := progress.Decode(string(text), 4711, orders)
	if err != nil {
		fmt.Println("begin at 4711 with nothing taken as finished:", err)
		return
	}
	fmt.Println(format, p.Segments[0].Heads, "up to", p.Horizon())

	// The commit was changed by hand: nothing of it is believed.
	_, _, err = progress.Decode(string(text), 5000, orders)
	fmt.Println(err)
	// Output:
	// ~ATKRxCQC8mwQc-ckEQYI0A8AABsMAQH9XQ
	// fronta [{4711 4712} {6711 6712}] up to 6712
	// it was made for a commit of offset 4711, not of 5000: something else has changed the commit
}

func ExampleInspect() {
	fmt.Print(progress.Inspect("ZQAAAAEAAXE1AAAAAQAAAEI=", 1))
	fmt.Print(progress.Inspect("kgo-2f1e7b8a-3c0d-4f5e-9a6b-7c8d9e0f1a2b", 1))
	// Output:
	// parallel-consumer, RunLengthV2: 24 units (24 bytes)
	// offset 1, horizon 94586: 94585 offsets, at most 2 unfinished
	// up to 94586, order unordered: 2 heads
	// unknown: 40 units (40 bytes)
	// refused, foreign: it is no progress in a format that is known here, but a member's id, which the client franz-go stores if it is not told otherwise
}
