package fronta_test

// Starting: what cannot work is an error of Run that says what was tried, what
// the brokers said and what to grant, create or change; never a hang.

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/fake"
)

func accept(context.Context, *fronta.Record) error { return nil }

// dialer answers every dial with the same error, or not at all.
func dialer(err error) kgo.Opt {
	return kgo.Dialer(func(ctx context.Context, _, _ string) (net.Conn, error) {
		if err != nil {
			return nil, err
		}
		<-ctx.Done()
		return nil, ctx.Err()
	})
}

func TestNoBrokerAnswers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		dial    error
		timeout time.Duration // 0: the default
		want    time.Duration
	}{
		"refused":                {errors.New("connection refused"), 0, 30 * time.Second},
		"refused, short timeout": {errors.New("connection refused"), 2 * time.Second, 2 * time.Second},
		"no answer":              {nil, 0, 30 * time.Second},
		"no answer, short":       {nil, 3 * time.Second, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cfg := valid()
				cfg.StartTimeout = tt.timeout
				cfg.Client = append(cfg.Client, dialer(tt.dial))
				c, err := fronta.NewConsumer(cfg)
				if err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				err = c.Run(t.Context(), fronta.HandlerFunc(accept))
				took := time.Since(begin)
				if err == nil || !strings.Contains(err.Error(), "no broker of kgo.SeedBrokers answered within Config.StartTimeout ("+tt.want.String()+")") {
					t.Errorf("Run: %v", err)
				}
				if tt.dial != nil && !errors.Is(err, tt.dial) {
					t.Errorf("%v does not wrap %v", err, tt.dial)
				}
				// Leaving a group that nobody could join may take 5 s more.
				if took < tt.want || took > tt.want+6*time.Second {
					t.Errorf("Run returned after %s, want %s", took, tt.want)
				}
			})
		})
	}
}

// H-112: a stop while the first answer is waited for is prompt, and no failure.
func TestStopBeforeTheFirstAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := valid()
		cfg.Client = append(cfg.Client, dialer(nil))
		c, err := fronta.NewConsumer(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		if err := c.Run(ctx, fronta.HandlerFunc(accept)); err != nil {
			t.Errorf("Run: %v, want nil", err)
		}
		if took := time.Since(begin); took > 7*time.Second {
			t.Errorf("Run returned %s after it began, want about 1 s", took)
		}
	})
}

func TestReceiveWithoutBrokers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := valid()
		cfg.Client = append(cfg.Client, dialer(errors.New("connection refused")))
		c, err := fronta.NewConsumer(cfg)
		if err != nil {
			t.Fatal(err)
		}
		d, err := c.Receive(t.Context())
		if d != nil || err == nil || !strings.Contains(err.Error(), "no broker of kgo.SeedBrokers answered") {
			t.Errorf("Receive: %v, %v", d, err)
		}
		if again := c.Shutdown(t.Context()); again == nil || again.Error() != err.Error() {
			t.Errorf("Shutdown: %v, want what Receive said", again)
		}
		if d, again := c.Receive(t.Context()); d != nil || again == nil || again.Error() != err.Error() {
			t.Errorf("Receive, again: %v, %v; want the same", d, again)
		}
	})
}

func TestSASLFailure(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.broker.Cluster().ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
			b.broker.Cluster().KeepControl()
			resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
			resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
			return resp, nil, true
		})
		cfg := b.config()
		cfg.Client = append(b.broker.Opts(), kgo.SASL(plain.Auth{User: "alice", Pass: "wrong"}.AsMechanism()))
		begin := time.Now()
		err := b.consumer(cfg).Run(b.t.Context(), fronta.HandlerFunc(accept))
		if !errors.Is(err, kerr.SaslAuthenticationFailed) || !strings.Contains(err.Error(), "authentication failed") || !strings.Contains(err.Error(), "kgo.SASL") {
			b.t.Errorf("Run: %v", err)
		}
		if took := time.Since(begin); took > 10*time.Second {
			b.t.Errorf("Run returned after %s: a password does not become right by waiting", took)
		}
	}, fake.ClusterOptions(kfake.EnableSASL(), kfake.Superuser("PLAIN", "admin", "admin")))
}

// A broker that wants SASL and hears none closes the connection.
func TestSASLMissing(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		cfg := b.config()
		cfg.Client = b.broker.Opts()
		cfg.StartTimeout = 5 * time.Second
		err := b.consumer(cfg).Run(b.t.Context(), fronta.HandlerFunc(accept))
		if err == nil || !strings.Contains(err.Error(), "within Config.StartTimeout (5s)") || !strings.Contains(err.Error(), "SASL") {
			b.t.Errorf("Run: %v", err)
		}
	}, fake.ClusterOptions(kfake.EnableSASL(), kfake.Superuser("PLAIN", "admin", "admin")))
}

// Each denial names the resource and the operation to grant.
func TestDenials(t *testing.T) {
	topic := func(name string, op kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: op, Allow: true}
	}
	group := kfake.ACL{Resource: kmsg.ACLResourceTypeGroup, Name: billing, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationRead, Allow: true}
	read, describe, write := kmsg.ACLOperationRead, kmsg.ACLOperationDescribe, kmsg.ACLOperationWrite
	for name, tt := range map[string]struct {
		acls []kfake.ACL
		is   error
		says []string
	}{
		"group": {
			[]kfake.ACL{topic(orders, read), topic(letters, write)},
			kerr.GroupAuthorizationFailed, []string{`group "billing"`, "READ on Group"},
		},
		"topic, not even seen": {
			[]kfake.ACL{group, topic(letters, write)},
			kerr.TopicAuthorizationFailed, []string{`topic "orders"`, "READ and DESCRIBE on Topic"},
		},
		"topic, not read": {
			[]kfake.ACL{group, topic(orders, describe), topic(letters, write)},
			kerr.TopicAuthorizationFailed, []string{`"orders"`, "READ"},
		},
		"dead-letter topic, not even seen": {
			[]kfake.ACL{group, topic(orders, read)},
			kerr.TopicAuthorizationFailed, []string{"Config.DeadLetter", `topic "orders.dlq"`, "WRITE and DESCRIBE on Topic"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, err := fake.Start(fake.Virtual(), fake.Topic(orders, 1), fake.Topic(letters, 1),
					fake.ClusterOptions(kfake.EnableSASL(), kfake.EnableACLs(), kfake.User("PLAIN", "alice", "secret", tt.acls...)))
				if err != nil {
					t.Fatal(err)
				}
				defer b.Close()
				cfg := valid()
				cfg.Client = append(b.Opts(), kgo.SASL(plain.Auth{User: "alice", Pass: "secret"}.AsMechanism()))
				cfg.DeadLetter = fronta.DeadLetterTopic(letters)
				c, err := fronta.NewConsumer(cfg)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				err = c.Run(ctx, fronta.HandlerFunc(accept))
				if !errors.Is(err, tt.is) {
					t.Fatalf("Run: %v, want %v", err, tt.is)
				}
				for _, want := range tt.says {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%q does not say %q", err, want)
					}
				}
			})
		})
	}
}

// H-077: who may see the dead-letter topic and not write to it learns so from
// every attempt, and loses nothing.
func TestDeadLetterTopicForbidden(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(record("a", "poison"), record("a", "next"), record("b", "other"))
		f := b.fail(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: letters, Err: kerr.TopicAuthorizationFailed})
		hook := new(recorder)
		cfg := b.config()
		cfg.DeadLetter, cfg.Hooks = fronta.DeadLetterTopic(letters), []any{hook}
		c := b.run(cfg, rejectPoison)
		b.until("some attempts", func() bool { return hook.count("dead letter failed") >= 5 })
		if !errors.Is(hook.of("dead letter failed")[0].err, kerr.TopicAuthorizationFailed) {
			b.t.Errorf("the hook was told %v", hook.of("dead letter failed")[0].err)
		}
		b.wantCommitted(0, 0)
		if s := c.Stats(); s.Accepted != 1 || s.DeadLettered != 0 || s.Unfinished != 2 {
			b.t.Errorf("accepted %d, dead-lettered %d, unfinished %d; want 1, 0, 2", s.Accepted, s.DeadLettered, s.Unfinished)
		}
		f.Remove()
		b.until("all is done", func() bool { return b.committed(0) == 3 })
		c.stop()
	})
}

func rejectPoison(_ context.Context, r *fronta.Record) error {
	if string(r.Value) == "poison" {
		return fronta.Reject(errDeclined)
	}
	return nil
}

func TestDeadLetterTopicMissing(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		cfg := b.config()
		cfg.DeadLetter = fronta.DeadLetterTopic("no.such.topic")
		begin := time.Now()
		err := b.run(cfg, accept).wait()
		if !errors.Is(err, kerr.UnknownTopicOrPartition) {
			b.t.Fatalf("Run: %v", err)
		}
		for _, want := range []string{"Config.DeadLetter", `"no.such.topic"`, "does not exist", "create it"} {
			if !strings.Contains(err.Error(), want) {
				b.t.Errorf("%q does not say %q", err, want)
			}
		}
		if took := time.Since(begin); took > 10*time.Second {
			b.t.Errorf("Run returned after %s", took)
		}
	})
}

// H-060: a topic that does not exist yet is consumed when it does, by name or
// by pattern.
func TestTopicThatComesLater(t *testing.T) {
	for name, change := range map[string]func(*fronta.Config){
		"by name":    func(c *fronta.Config) { c.Topics = []string{"later"} },
		"by pattern": func(c *fronta.Config) { c.Topics, c.Regex = []string{"^lat.r$"}, true },
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 1, func(b *bench) {
				cfg := b.config()
				var lines logged
				cfg.Logger = lines.logger()
				change(&cfg)
				var calls journal
				c := b.run(cfg, func(_ context.Context, r *fronta.Record) error { calls.add(r); return nil })
				time.Sleep(10 * time.Second)
				if name == "by name" && !strings.Contains(lines.String(), "does not exist yet") {
					b.t.Error("no line says that the topic does not exist")
				}
				if err := b.broker.Cluster().CreateTopic("later", 1, nil); err != nil {
					b.t.Fatal(err)
				}
				b.produce(&kgo.Record{Topic: "later", Value: []byte("v")})
				made := time.Now()
				calls.wait(b.t, 1)
				if d := time.Since(made); d > 65*time.Second {
					b.t.Errorf("consumed after %s, want the metadata's minute", d)
				}
				c.stop()
			})
		})
	}
}

// H-137: a broker without the newer group protocol.
func TestProtocolThatTheBrokerLacks(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		cfg := b.config()
		cfg.Protocol = fronta.ConsumerProtocol
		f := b.fail(kfake.Fault{Keys: []kmsg.Key{kmsg.ConsumerGroupHeartbeat}, TopLevel: true, Err: kerr.UnsupportedVersion})
		defer f.Remove()
		err := b.run(cfg, accept).wait()
		if err == nil || !strings.Contains(err.Error(), "Config.Protocol") || !errors.Is(err, kerr.UnsupportedVersion) {
			b.t.Errorf("Run: %v", err)
		}
	})
}
