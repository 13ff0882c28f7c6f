package kafkatest

// What a caller may ask of a cluster. An option that Kafka would misread is refused before anything is started.

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Option changes a cluster that [Start] makes.
type Option func(*config)

type config struct {
	properties map[string]string
	tls        bool
	users      []user
}

type user struct{ name, password string }

// mechanism is the login of the user.
func (u user) mechanism() sasl.Mechanism {
	return scram.Auth{User: u.name, Pass: u.password}.AsSha256Mechanism()
}

// WithProperty sets a broker setting, such as offset.metadata.max.bytes. It wins over what the package sets itself; of two
// values for one name the last counts. The settings that all clusters have are in test/kafka/server.properties.
func WithProperty(name, value string) Option {
	return func(c *config) { c.properties[name] = value }
}

// WithTLS makes clients connect with TLS. The certificates are made anew for each cluster; Opts has the authority that
// a client must trust.
func WithTLS() Option {
	return func(c *config) { c.tls = true }
}

// WithSCRAM makes clients log in, with SCRAM-SHA-256 or SCRAM-SHA-512, and adds a user. Opts logs in as the first user, OptsAs
// as any of them. Names and passwords are of letters, digits, dots, dashes and underscores.
//
// Users are not restricted until the cluster has an authorizer:
//
//	kafkatest.WithProperty("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
//	kafkatest.WithProperty("super.users", "User:ANONYMOUS;User:admin"),
//
// where ANONYMOUS is the broker itself.
func WithSCRAM(name, password string) Option {
	return func(c *config) { c.users = append(c.users, user{name, password}) }
}

// credential is what StorageTool takes without quotes.
var credential = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

func newConfig(options []Option) (config, error) {
	c := config{properties: make(map[string]string)}
	for _, option := range options {
		option(&c)
	}
	for i, u := range c.users {
		if !credential.MatchString(u.name) || !credential.MatchString(u.password) {
			return c, fmt.Errorf("user %q: name and password must be of letters, digits, dots, dashes and underscores", u.name)
		}
		if slices.ContainsFunc(c.users[:i], func(other user) bool { return other.name == u.name }) {
			return c, fmt.Errorf("user %q is named twice", u.name)
		}
	}
	return c, nil
}

// protocol is Kafka's name for what clients speak.
func (c config) protocol() string {
	switch {
	case c.tls && len(c.users) > 0:
		return "SASL_SSL"
	case c.tls:
		return "SSL"
	case len(c.users) > 0:
		return "SASL_PLAINTEXT"
	}
	return "PLAINTEXT"
}
