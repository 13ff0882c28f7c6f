package kafkatest

// One cluster for all tests of a test binary. It is started by the first test that asks and ended by Main, so a binary
// whose tests are all skipped starts none.

import (
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

var shared struct {
	mu      sync.Mutex
	main    bool // Main runs, and will end the cluster
	tried   bool
	cluster *Cluster
	dir     string
	err     error
}

// Shared returns a cluster that the tests of this test binary use together: with the settings of test/kafka/server.properties,
// without TLS and login. A test takes topics and groups with names of its own. The cluster cannot be stopped or restarted by a
// test. It needs a TestMain that calls [Main]; the test is skipped or fails as with [Start].
func Shared(t testing.TB) *Cluster {
	t.Helper()
	installed := require(t)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.main {
		t.Fatal("kafkatest: the shared cluster needs func TestMain(m *testing.M) { kafkatest.Main(m) }")
	}
	if !shared.tried {
		shared.tried = true
		shared.cluster, shared.err = startShared(installed)
	}
	if shared.err != nil {
		t.Fatalf("kafkatest: the shared cluster: %v", shared.err)
	}
	return shared.cluster
}

func startShared(installed installation) (*Cluster, error) {
	config, err := newConfig(nil)
	if err != nil {
		return nil, err
	}
	if shared.dir, err = os.MkdirTemp("", "kafkatest"); err != nil {
		return nil, err
	}
	return start(installed, config, shared.dir)
}

// Main runs the tests, ends the shared cluster, looks for goroutines that are left over, with goleak and the given options, and
// exits. It is the whole of a TestMain:
//
//	func TestMain(m *testing.M) { kafkatest.Main(m) }
func Main(m goleak.TestingM, options ...goleak.Option) {
	goleak.VerifyTestMain(endShared{m}, options...)
}

// endShared is a test run that ends with the end of the shared cluster.
type endShared struct{ goleak.TestingM }

func (m endShared) Run() int {
	shared.mu.Lock()
	shared.main = true
	shared.mu.Unlock()

	code := m.TestingM.Run()

	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.cluster != nil {
		shared.cluster.process.kill()
	}
	if shared.dir != "" {
		if err := os.RemoveAll(shared.dir); err != nil {
			os.Stderr.WriteString("kafkatest: " + err.Error() + "\n")
		}
	}
	return code
}
