package fronta

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/fronta-mq/fronta/deadletter"
	"github.com/fronta-mq/fronta/internal/engine"
	"github.com/fronta-mq/fronta/internal/group"
)

// engineEvents are the lines that the engine's events are worth, and the
// hooks. Lines carry topic, partition and offset, never a record's content
// (H-141).
func (c *Consumer) engineEvents() engine.Events {
	log, hooks := c.cfg.Logger, c.cfg.Hooks
	where := func(d *engine.Delivery, more ...any) []any {
		return append([]any{"group", c.cfg.Group, "topic", d.Topic, "partition", d.Partition, "offset", d.Offset}, more...)
	}
	retry := hooksOf[HookRetry](hooks)
	lettered := hooksOf[HookDeadLettered](hooks)
	letterFailed := hooksOf[HookDeadLetterFailed](hooks)
	discarded := hooksOf[HookDiscarded](hooks)
	stuck := hooksOf[HookStuck](hooks)
	late := hooksOf[HookLate](hooks)
	var withheld, homeless rare

	return engine.Events{
		Retry: func(d *engine.Delivery, err error, delay time.Duration) {
			log.Debug("attempt failed; the record waits for the next", where(d, "deliveries", d.DeliveryCount, "delay", delay, "err", firstLine(err))...)
			tell(c, retry, func(h HookRetry) { h.OnRetry((*Record)(d), err, delay) })
		},
		Withheld: func(d *engine.Delivery) {
			if withheld.now() {
				log.Warn("many records fail at once: exhausted records go on being tried instead of being dead-lettered, until others succeed again", where(d, "deliveries", d.DeliveryCount)...)
			}
		},
		Homeless: func(d *engine.Delivery, err error) {
			if homeless.now() {
				log.Warn("a handler returned Reject, but Config.DeadLetter is not set: the record is tried again", where(d, "err", firstLine(err))...)
			}
		},
		Discarded: func(d *engine.Delivery, reason deadletter.Reason, err error) {
			log.Warn("record discarded", where(d, "reason", reason, "deliveries", d.DeliveryCount, "err", firstLine(err))...)
			tell(c, discarded, func(h HookDiscarded) { h.OnDiscarded((*Record)(d), reason, err) })
		},
		DeadLettered: func(l engine.Letter) {
			d := &engine.Delivery{Record: l.Record, DeliveryCount: l.Deliveries, Fence: l.Fence, Failure: &l.Failure}
			log.Info("record dead-lettered", where(d, "reason", l.Reason, "deliveries", l.Deliveries, "to", c.cfg.DeadLetter.topic, "err", firstLine(l.Failure.Err))...)
			tell(c, lettered, func(h HookDeadLettered) { h.OnDeadLettered((*Record)(d), l.Reason, l.Failure.Err) })
		},
		LetterFailed: func(d *engine.Delivery, tries int, delay time.Duration, err error) {
			log.Error("dead letter could not be written; its lane waits", where(d, "to", c.cfg.DeadLetter.topic, "tries", tries, "again_in", delay, "err", err)...)
			tell(c, letterFailed, func(h HookDeadLetterFailed) { h.OnDeadLetterFailed((*Record)(d), err, delay) })
		},
		Stuck: func(d *engine.Delivery, age time.Duration, released bool) {
			msg := "handler runs for long; its lane waits"
			if released {
				msg = "delivery was not settled in time and is released as a failed attempt"
			}
			log.Warn(msg, where(d, "age", age, "key_length", len(d.Key), "deliveries", d.DeliveryCount)...)
			tell(c, stuck, func(h HookStuck) { h.OnStuck((*Record)(d), age) })
		},
		Late: func(d *engine.Delivery) {
			log.Info("a result came after its partition had gone and changes nothing", where(d)...)
			tell(c, late, func(h HookLate) { h.OnLate((*Record)(d)) })
		},
		Rewound: func(tp engine.TopicPartition, was, is int64) {
			log.Error("the log went back: records in work from there on are dropped and read again", "group", c.cfg.Group, "topic", tp.Topic, "partition", tp.Partition, "read_to", was, "offset", is)
		},
		Forgotten: func(tp engine.TopicPartition, at, horizon int64, why error) {
			log.Warn("stored progress does not agree with the log: finished records from here on are handled again", "group", c.cfg.Group, "topic", tp.Topic, "partition", tp.Partition, "offset", at, "horizon", horizon, "err", why)
		},
		Crashed: func(tp engine.TopicPartition, at int64, times int) {
			log.Error("the process ended while this record was handled", "group", c.cfg.Group, "topic", tp.Topic, "partition", tp.Partition, "offset", at, "crashes", times, "max_crashes", c.cfg.MaxCrashes)
		},
		Careful: func(tp engine.TopicPartition, from, until int64, starts int) {
			log.Warn("the process seems to have crashed on a record of this partition: records below until are started one at a time to find it", "group", c.cfg.Group, "topic", tp.Topic, "partition", tp.Partition, "offset", from, "until", until, "starts", starts)
		},
		Carefree: func(tp engine.TopicPartition) {
			log.Info("records of the partition are started together again", "group", c.cfg.Group, "topic", tp.Topic, "partition", tp.Partition)
		},
	}
}

func (c *Consumer) groupEvents() group.Events {
	hooks := c.cfg.Hooks
	assigned := hooksOf[HookAssigned](hooks)
	revoked := hooksOf[HookRevoked](hooks)
	lost := hooksOf[HookLost](hooks)
	committed := hooksOf[HookCommitted](hooks)
	failed := hooksOf[HookCommitFailed](hooks)
	return group.Events{
		Assigned: func(tps []engine.TopicPartition, fence int64) {
			c.engine.PauseWhere(c.paused.holds)
			tell(c, assigned, func(h HookAssigned) { h.OnAssigned(public(tps), fence) })
		},
		Revoked: func(tps []engine.TopicPartition) {
			tell(c, revoked, func(h HookRevoked) { h.OnRevoked(public(tps)) })
		},
		Lost: func(tps []engine.TopicPartition, err error) {
			tell(c, lost, func(h HookLost) { h.OnLost(public(tps), err) })
		},
		Committed: func(p engine.Position) {
			tell(c, committed, func(h HookCommitted) { h.OnCommitted(TopicPartition(p.TopicPartition), p.Offset) })
		},
		CommitFailed: func(p engine.Position, err error) {
			tell(c, failed, func(h HookCommitFailed) { h.OnCommitFailed(TopicPartition(p.TopicPartition), p.Offset, err) })
		},
	}
}

// tell calls hooks. A hook that panics is not worth the process: it is logged,
// and the others are called (H-087).
func tell[H any](c *Consumer, hooks []H, call func(H)) {
	for _, h := range hooks {
		func() {
			defer func() {
				if v := recover(); v != nil {
					c.cfg.Logger.Error("a hook panicked", "group", c.cfg.Group, "hook", fmt.Sprintf("%T", h), "panic", v, "stack", string(debug.Stack()))
				}
			}()
			call(h)
		}()
	}
}

func public(tps []engine.TopicPartition) []TopicPartition {
	out := make([]TopicPartition, len(tps))
	for i, tp := range tps {
		out[i] = TopicPartition(tp)
	}
	return out
}

// firstLine is err without the stack that a panic's has.
func firstLine(err error) string {
	if err == nil {
		return ""
	}
	var p *PanicError
	if errors.As(err, &p) {
		return "panic"
	}
	return err.Error()
}
