package consumer_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/test/kafka/kafkatest"
)

// churnVariable says how long members come and go in TestMembersComeAndGo.
const churnVariable = "FRONTA_TEST_CHURN"

func churnTime(t *testing.T) time.Duration {
	text := os.Getenv(churnVariable)
	if text == "" {
		return 20 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s: %v", churnVariable, err)
	}
	return d
}

// Every second a member joins a group of three and the oldest leaves, while records keep coming, some keys take longer than
// a member stays and one key is never done. Now and then the brokers throw a member out. Nothing that was finished
// runs again, except what a member that was thrown out finished after its last commit; order and fences hold (P-2, P-3; H-042,
// H-049).
func TestMembersComeAndGo(t *testing.T) {
	t.Parallel()
	length := churnTime(t)
	eachProtocol(t, func(t *testing.T, set func(*fronta.Config)) {
		t.Parallel()
		w := newWorld(t, kafkatest.Shared(t), 6, func(c *fronta.Config) {
			c.DrainTimeout = 300 * time.Millisecond
			set(c)
		})
		release := make(chan struct{}) // of what is slow and stuck
		handle := func(ctx context.Context, r *fronta.Record) error {
			wait := time.Duration(0)
			switch key := string(r.Key); {
			case key == "stuck":
				wait = time.Hour
			case strings.HasPrefix(key, "slow"):
				wait = time.Duration(number(r)%4) * 500 * time.Millisecond
			}
			if wait > 0 {
				select {
				case <-ctx.Done():
					return context.Cause(ctx)
				case <-time.After(wait):
				case <-release:
				}
			}
			work(r)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if number(r)%97 == 0 && r.DeliveryCount == 1 {
				return errors.New("once")
			}
			return nil
		}
		key := func(i int) string {
			switch {
			case i%50 == 0:
				return "stuck"
			case i%50 == 1:
				return "slow-" + strconv.Itoa(rand.IntN(20))
			}
			return "key-" + strconv.Itoa(i%300)
		}

		w.produceAs(500, key)
		var members []*member
		began := time.Now()
		joined, thrown := 0, 0
		join := func() {
			joined++
			members = append(members, w.join("member-"+strconv.Itoa(joined), handle))
		}
		join()
		join()
		for next := began; time.Since(began) < length; {
			join()
			w.produceAs(300, key)
			if joined%4 == 0 && w.throwOut(members[rand.IntN(len(members))]) {
				thrown++
			}
			next = next.Add(time.Second)
			time.Sleep(time.Until(next)) // it is the test's pace
			members[0].leave()
			members = members[1:]
		}
		close(release)
		// One that was thrown out and has not noticed may take what it finished with it; somebody stays to do that again.
		join()
		last := members[len(members)-1]
		for _, m := range members[:len(members)-1] {
			m.leave()
		}
		w.until("all is committed", func() bool { return last.committed() == int64(w.produced) })
		last.leave()
		report := w.judge()
		t.Logf("%d members came and went in %s, %d were thrown out; %d records, repeats %v", joined, time.Since(began).Round(time.Second), thrown, w.produced, report.Repeats)
	})
}

// throwOut has the brokers remove a member from the group, who learns of it from its next heartbeat or commit. It is false
// when it is not in the group at the moment, or the group is run by the newer protocol, in which only the member itself can
// leave.
func (w *world) throwOut(m *member) bool {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	groups, err := kadm.NewClient(w.client).DescribeGroups(ctx, w.group)
	if err != nil {
		w.t.Fatalf("describe %s: %v", w.group, err)
	}
	g := groups[w.group]
	i := slices.IndexFunc(g.Members, func(d kadm.DescribedGroupMember) bool { return d.ClientID == m.name })
	if g.Err != nil || i < 0 {
		return false
	}
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = w.group
	member := kmsg.NewLeaveGroupRequestMember()
	member.MemberID = g.Members[i].MemberID
	req.Members = append(req.Members, member)
	m.thrownOut.Store(true)
	resp, err := req.RequestWith(ctx, w.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err == nil && len(resp.Members) > 0 {
		err = kerr.ErrorForCode(resp.Members[0].ErrorCode)
	}
	if err != nil {
		m.thrownOut.Store(false)
		w.t.Logf("%s could not be thrown out: %v", m.name, err)
	}
	return err == nil
}
