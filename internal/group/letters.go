package group

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fronta-mq/fronta/deadletter"
	"github.com/fronta-mq/fronta/internal/engine"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// letterTimeout is how long one attempt to write a dead letter may take.
const letterTimeout = 30 * time.Second

// noDeliveryTimeout: the client measures that time from the record's timestamp,
// which is the source record's, so that a dead letter of an old record would
// have timed out before it was sent. The context of a write ends it instead.
var noDeliveryTimeout = kgo.RecordDeliveryTimeout(0)

// Writer writes dead letters to topic: acks=all, idempotent, in the
// partition that the producer's partitioner has for the key.
type Writer struct {
	d     *Driver
	topic string

	mu     sync.Mutex
	large  *kgo.Client // for records above the ordinary batch size
	closed bool
}

// Writer returns the writer for the driver's dead-letter topic. It is freed
// when Run returns.
func (d *Driver) Writer() *Writer {
	d.letters = &Writer{d: d, topic: d.cfg.DeadLetterTopic}
	return d.letters
}

// Write implements engine.LetterWriter.
func (w *Writer) Write(ctx context.Context, letter engine.Letter, done func(error)) {
	text := ""
	if letter.Failure.Err != nil {
		text = letter.Failure.Err.Error()
	}
	record := deadletter.Record(w.topic, letter.Record, deadletter.Info{
		Group: w.d.cfg.Group, Reason: letter.Reason, Error: text, DeliveryCount: letter.Deliveries,
		FirstFailure: letter.Failure.First, LastFailure: letter.Failure.Last,
	})
	w.produce(ctx, w.d.client.Load(), record, func(err error) {
		if !errors.Is(err, kerr.MessageTooLarge) {
			done(err)
			return
		}
		// Larger than the client's batches, or the topic's. The first can be
		// mended here.
		go func() {
			large, lerr := w.largeClient()
			if lerr != nil {
				done(err)
				return
			}
			w.produce(ctx, large, record, done)
		}()
	})
}

// produce starts one write. It never waits: a full buffer is an error like any
// other, and the engine tries again later (H-077).
func (w *Writer) produce(ctx context.Context, client *kgo.Client, record *kgo.Record, done func(error)) {
	// The handler's deadline is not the write's (H-082): the engine hands us a
	// context without one.
	ctx, cancel := context.WithTimeout(ctx, letterTimeout)
	// A copy: the client leaves its context in the record, and this may be the
	// second attempt to write it.
	fresh := *record
	client.TryProduce(ctx, &fresh, func(_ *kgo.Record, err error) {
		cancel()
		if !errors.Is(err, kerr.UnknownTopicID) {
			done(err)
			return
		}
		// The topic was deleted and created again. The client holds on to the
		// old one until it is told to forget it, which it can't be from here.
		go func() {
			client.PurgeTopicsFromProducing(w.topic)
			done(err)
		}()
	})
}

func (w *Writer) largeClient() (*kgo.Client, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, kgo.ErrClientClosed
	}
	if w.large != nil {
		return w.large, nil
	}
	opts := append([]kgo.Opt{kgo.WithLogger(clientLog{w.d.cfg.Log})}, w.d.cfg.Client...)
	opts = append(opts,
		kgo.ConsumerGroup(""), kgo.ConsumeTopics(),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(0), noDeliveryTimeout)
	opts = append(opts, kgo.ProducerBatchMaxBytes(64<<20), kgo.BrokerMaxWriteBytes(100<<20))
	var err error
	w.large, err = kgo.NewClient(opts...)
	return w.large, err
}

// close frees the writer's own client; writes that are under way fail.
func (w *Writer) close() {
	w.mu.Lock()
	w.closed = true
	large := w.large
	w.mu.Unlock()
	if large != nil {
		large.Close()
	}
}
