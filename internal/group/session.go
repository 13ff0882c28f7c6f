package group

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fronta-mq/fronta/internal/engine"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// session is one membership of the group: a client of its own, from joining
// to leaving or being thrown out.
type session struct {
	d      *Driver
	client *kgo.Client
	made   chan struct{} // closed when client is set; see join
	began  time.Time

	polling sync.Mutex // held from a poll's beginning until its records are offered

	mu        sync.Mutex
	interrupt context.CancelFunc // ends the poll under way
	breaking  int                // polls have to end at once: somebody waits for them
	joined    bool
	joinedAt  time.Time
	first     bool            // the driver's first membership
	read      map[string]bool // topics of which records were read
	logged    map[condition]logged
	texts     map[string]map[int32]string    // that the last answer about offsets had, see fetched
	held      map[engine.TopicPartition]bool // partitions that were assigned and not taken away, as the user was told

	void     chan struct{} // closed when the membership is void
	voidOnce sync.Once
	stopping chan struct{} // closed when serve is over: rebalances need no drain
	done     sync.WaitGroup
	reading  context.Context // ends with serve
	cancel   context.CancelFunc
	life     context.Context    // of the client's requests
	kill     context.CancelFunc // ends them, whatever they wait for

	looking atomic.Bool // for a topic that was made again

	ids      topicIDs
	refusals map[engine.TopicPartition]refusal // for the goroutine of commits
	late     late                              // partitions whose progress can't be checked yet
}

// join makes a client that joins the group.
func (d *Driver) join() (*session, error) {
	s := &session{d: d, began: time.Now(), made: make(chan struct{}), void: make(chan struct{}), stopping: make(chan struct{})}
	s.first, s.read = d.client.Load() == nil, make(map[string]bool)
	cfg := &d.cfg
	life := cfg.Context
	if life == nil {
		life = context.Background()
	}
	s.life, s.kill = context.WithCancel(life)
	opts := []kgo.Opt{
		kgo.WithLogger(clientLog{cfg.Log}),
		kgo.MetadataMaxAge(time.Minute),
		// A partition that is read again after a pause is asked for only when
		// the fetch under way has ended, so that wait is kept short.
		kgo.FetchMaxWait(500 * time.Millisecond),
		kgo.FetchMaxBytes(cfg.FetchMaxBytes),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
	}
	opts = append(opts, cfg.Client...)
	opts = append(opts,
		kgo.WithContext(s.life),
		kgo.ConsumerGroup(cfg.Group),
		kgo.ConsumeTopics(cfg.Topics...),
		kgo.DisableAutoCommit(),
		kgo.ConsumeStartOffset(cfg.Start),
		kgo.ConsumeResetOffset(cfg.Reset),
		kgo.KeepControlRecords(), // so that the frontier steps over them (H-015, H-016)
		kgo.OnPartitionsAssigned(s.assigned),
		kgo.OnPartitionsRevoked(s.revoked),
		kgo.OnPartitionsLost(s.lost),
		kgo.OnOffsetsFetched(s.fetched),
		kgo.AdjustFetchOffsetsFn(s.starts),
		kgo.WithHooks(&manageHook{s}, commitHook{&d.committed}),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(0),
		noDeliveryTimeout,
	)
	if cfg.Regex {
		opts = append(opts, kgo.ConsumeRegex())
	}
	if cfg.ReadCommitted {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	if cfg.NextGen {
		opts = append(opts, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		s.kill()
		return nil, fmt.Errorf("fronta: Config.Client: %w", err)
	}
	// The client joins from its first moment on, and may call back before it
	// is known here; callbacks wait for that.
	s.client = client
	d.client.Store(client)
	close(s.made)
	return s, nil
}

// serve reads and commits until the session has to end: nil because ctx ended
// or the engine failed, errRejoin because the membership is void.
func (s *session) serve(ctx context.Context) error {
	inner, cancel := context.WithCancel(context.Background())
	s.reading, s.cancel = inner, cancel
	s.done.Add(2)
	go func() { defer s.done.Done(); s.poll(inner) }()
	go func() { defer s.done.Done(); s.commits(inner) }()
	select {
	case <-ctx.Done():
		return nil
	case <-s.d.engine.Fatal():
		return nil
	case <-s.void:
		return errRejoin
	}
}

// abandon throws a void membership away. What it owned is lost.
func (s *session) abandon() {
	s.late.end()
	s.lose(s.d.engine.Owned(), errRejoin) // what was assigned after the rest was lost
	s.d.engine.Lose(s.d.engine.Owned())
	close(s.stopping)
	s.cancel()
	s.ended()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.close(ctx)
}

// stop ends a membership in good order: reading ends, handlers have their
// time, what they achieved is committed, the group is left. Each part has a
// budget of its own, so that a coordinator that answers nothing cannot eat the
// time of the leaving.
func (s *session) stop(hard context.Context) error {
	d := s.d
	d.engine.Halt()
	s.breakPoll()

	drain, cancel := context.WithTimeout(hard, d.cfg.DrainTimeout)
	err := d.engine.Drain(drain)
	cancel()
	if err != nil {
		d.engine.Cancel(engine.ErrStopping)
		// A handler that heeds its context ends now; whatever it achieves by
		// then still counts.
		grace, cancel := context.WithTimeout(context.Background(), min(d.cfg.DrainTimeout, handlerGrace))
		_ = d.engine.Drain(grace)
		cancel()
	}
	close(s.stopping)
	if s.cancel != nil {
		s.cancel()
	}
	s.ended()

	commit, cancel := context.WithTimeout(context.Background(), d.cfg.CommitTimeout)
	d.engine.Seal()
	s.commitLast(commit)
	cancel()
	s.late.end()
	d.engine.Close()

	leave, cancel := context.WithTimeout(context.Background(), d.cfg.LeaveTimeout)
	s.close(leave)
	cancel()
	return d.engine.Failure()
}

// handlerGrace is how long a stop waits for handlers after it has cancelled
// them.
const handlerGrace = 5 * time.Second

// close leaves the group and closes the client, and waits for neither longer
// than ctx; Run waits for a client that takes longer.
func (s *session) close(ctx context.Context) {
	if err := s.leave(ctx); err != nil && !errors.Is(err, kerr.UnknownMemberID) {
		s.d.cfg.Log.Warn("could not leave the group; its other members wait for this one's session to time out",
			"group", s.d.cfg.Group, "err", err)
	}
	closed := make(chan struct{})
	s.d.closing.Add(1)
	go func() {
		defer s.d.closing.Done()
		defer close(closed)
		s.client.CloseAllowingRebalance()
	}()
	select {
	case <-closed:
	case <-ctx.Done():
	}
	// What the client still waits for is not worth waiting for.
	s.kill()
}

// leave leaves the group. The client does so only after its join, if one is
// under way, was answered, and a join may take as long as the slowest member;
// so when half of the time is over, the request is sent past it (H-112).
func (s *session) leave(ctx context.Context) error {
	half, cancel := ctx, context.CancelFunc(func() {})
	if deadline, ok := ctx.Deadline(); ok {
		half, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
	}
	defer cancel()
	err := s.client.LeaveGroupContext(half)
	if half.Err() == nil || ctx.Err() != nil {
		return err
	}
	id, _ := s.client.GroupMetadata()
	if instance, _ := s.client.OptValue(kgo.InstanceID).(string); instance != "" || id == "" || s.d.cfg.NextGen {
		return err
	}
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = s.d.cfg.Group, id
	member := kmsg.NewLeaveGroupRequestMember()
	member.MemberID, member.Reason = id, kmsg.StringPtr("the consumer stops while it joins")
	req.Members = append(req.Members, member)
	resp, err := req.RequestWith(ctx, s.client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

// ended waits for the session's goroutines, for CommitTimeout at most: one of
// them may be in a hook that waits for the consumer to stop (H-091).
func (s *session) ended() {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.done.Wait()
	}()
	timer := time.NewTimer(s.d.cfg.CommitTimeout)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
}

func (s *session) setVoid() { s.voidOnce.Do(func() { close(s.void) }) }

// poll reads until ctx ends.
func (s *session) poll(ctx context.Context) {
	e := s.d.engine
	for ctx.Err() == nil {
		switch s.pollOnce(ctx) {
		case pollFull:
			select {
			case <-e.Room():
			case <-ctx.Done():
			}
		case pollFailed:
			// Some errors come back with every fetch; they are not to be
			// fetched in a loop.
			select {
			case <-time.After(pollFailedWait):
			case <-ctx.Done():
			}
		}
	}
}

const pollFailedWait = 250 * time.Millisecond

// polled is what a poll came to.
type polled uint8

const (
	pollRead   polled = iota // records, or nothing in time
	pollFull                 // there is no room for any
	pollFailed               // nothing but errors
)

// pollOnce asks for records once and offers them.
func (s *session) pollOnce(ctx context.Context) polled {
	e := s.d.engine
	s.polling.Lock()
	defer s.polling.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	s.interrupt = cancel
	if s.breaking > 0 {
		cancel()
	}
	s.mu.Unlock()

	r := e.Reading(cancel)
	if free := s.late.without(r.Free); len(free) > 0 {
		s.client.ResumeFetchPartitions(byTopic(free))
	}
	if len(r.Hold) > 0 {
		s.client.PauseFetchPartitions(byTopic(r.Hold))
	}
	if r.Max == 0 {
		e.Read()
		return pollFull
	}
	var failed, read bool
	fetches := s.client.PollRecords(ctx, r.Max)
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		if p.Err != nil {
			failed = s.fetchFailed(engine.TopicPartition{Topic: p.Topic, Partition: p.Partition}, p.Err) || failed
		}
		if len(p.Records) == 0 {
			return
		}
		read = true
		if s.first && !s.read[p.Topic] { // only this goroutine writes to read
			s.mu.Lock()
			s.read[p.Topic] = true
			s.mu.Unlock()
		}
		end := p.HighWatermark
		if s.d.cfg.ReadCommitted && p.LastStableOffset >= 0 {
			end = p.LastStableOffset
		}
		e.Offer(engine.TopicPartition{Topic: p.Topic, Partition: p.Partition}, p.Records, end)
	})
	e.Read()
	if failed && !read {
		return pollFailed
	}
	return pollRead
}

// breakPoll makes the poll under way return.
func (s *session) breakPoll() {
	s.mu.Lock()
	if s.interrupt != nil {
		s.interrupt()
	}
	s.mu.Unlock()
}

// passPoll waits until the poll under way, if any, has returned and its
// records were offered. Partitions opened after that cannot be offered records
// that were read before:
//
//	poll:   takes records of P0 from the client's buffer, is descheduled
//	group:  P0 is revoked, assigned again, and would be opened at its
//	        committed offset here
//	poll:   goes on and offers the old records, behind that offset
func (s *session) passPoll() {
	s.mu.Lock()
	s.breaking++
	if s.interrupt != nil {
		s.interrupt()
	}
	s.mu.Unlock()
	s.polling.Lock()
	s.mu.Lock()
	s.breaking--
	s.mu.Unlock()
	s.polling.Unlock()
}

// assigned is called by the client for partitions that are ours from now on,
// before it reads any of them.
func (s *session) assigned(_ context.Context, client *kgo.Client, added map[string][]int32) {
	<-s.made
	d := s.d
	_, generation := client.GroupMetadata()
	s.mu.Lock()
	if !s.joined {
		s.joined, s.joinedAt = true, time.Now()
	}
	s.mu.Unlock()
	d.readyOnce.Do(func() { close(d.ready) })
	if len(added) == 0 {
		return
	}
	s.passPoll()
	tps := flat(added)
	s.late.drop(tps)
	s.mu.Lock()
	if s.held == nil {
		s.held = make(map[engine.TopicPartition]bool)
	}
	for _, tp := range tps {
		s.held[tp] = true
	}
	s.mu.Unlock()
	// What was held for an earlier assignment is not held for this one.
	client.ResumeFetchPartitions(added)
	for _, tp := range tps {
		d.committed.forget(tp)
		d.engine.Add(tp, 0, -1)
	}
	d.cfg.Log.Info("partitions assigned", "group", d.cfg.Group, "partitions", names(tps), "generation", generation)
}

// revoked is called by the client for partitions that are to be given up in
// good order; the group waits.
func (s *session) revoked(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
	<-s.made
	tps := s.giveUp(flat(gone))
	if len(tps) == 0 {
		return
	}
	d := s.d
	drain, cancel := context.WithTimeout(context.Background(), d.cfg.RevokeTimeout)
	select {
	case <-s.stopping: // stop has drained
		cancel()
	default:
	}
	final := d.engine.Revoke(drain, tps)
	cancel()
	commit, cancel := context.WithTimeout(context.Background(), d.cfg.CommitTimeout)
	s.commitFinal(commit, final)
	cancel()
	d.cfg.Log.Info("partitions revoked", "group", d.cfg.Group, "partitions", names(tps))
	if f := d.cfg.Events.Revoked; f != nil {
		f(tps)
	}
}

// lost is called by the client for partitions that are somebody else's by now.
func (s *session) lost(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
	<-s.made
	s.lose(flat(gone), errors.New("the group ended this membership"))
}

func (s *session) lose(tps []engine.TopicPartition, why error) {
	tps = s.giveUp(tps)
	if len(tps) == 0 {
		return
	}
	d := s.d
	d.engine.Lose(tps)
	d.cfg.Log.Warn("partitions lost: their unfinished records will be handled again by their next owner, and so will those finished after the last commit",
		"group", d.cfg.Group, "partitions", names(tps), "err", why)
	if f := d.cfg.Events.Lost; f != nil {
		f(tps, why)
	}
}

// giveUp answers with those of tps that were still held. The end of a membership
// is noticed by commits, by heartbeats and by fetches, and whoever comes first
// tells of it:
//
//	commit:    UNKNOWN_MEMBER_ID; all partitions are lost
//	heartbeat: UNKNOWN_MEMBER_ID; the client calls lost for the same partitions
func (s *session) giveUp(tps []engine.TopicPartition) []engine.TopicPartition {
	if len(tps) == 0 {
		return nil
	}
	s.late.drop(tps)
	s.mu.Lock()
	defer s.mu.Unlock()
	var were []engine.TopicPartition
	for _, tp := range tps {
		if s.held[tp] {
			delete(s.held, tp)
			were = append(were, tp)
		}
	}
	return were
}

// manageHook hears of errors of the client's group management.
type manageHook struct{ s *session }

// OnBrokerWrite hears of requests. The client falls back to the classic
// protocol by itself when the broker has no other, with a balancer that was
// not meant for it; who asked for the newer one is to know instead (H-137).
func (h *manageHook) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if d := h.s.d; d.cfg.NextGen && key == int16(kmsg.JoinGroup) {
		d.engine.Fail(fatalGroupError(d.cfg, kerr.UnsupportedVersion, false))
	}
}

func (h *manageHook) OnGroupManageError(err error) {
	s := h.s
	d := s.d
	s.mu.Lock()
	joined := s.joined
	s.mu.Unlock()
	if fatal := fatalGroupError(d.cfg, err, joined); fatal != nil {
		d.engine.Fail(fatal)
		return
	}
	d.cfg.Log.Warn("group membership failed; joining again", "group", d.cfg.Group, "err", err)
}
