package kafkatest

// Free ports. Nothing can reserve one for another process, so what must stay true is only that two clusters of this process
// never get the same one, and that a cluster can come back to its own after a restart.

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Ports are taken below those that systems give to outgoing connections (from 32768 on Linux, from 49152 elsewhere). Asking
// the system for any port would give one of these, and while the broker is down for a restart, a client that dials could get
// the broker's port for its own end of a connection; the broker could not come back then.
const firstPort, lastPort = 10000, 31999

var (
	handedOutMu sync.Mutex
	handedOut   = make(map[int]bool)
)

// freePorts returns n ports of the loopback address that nobody listens on.
func freePorts(n int) ([]int, error) {
	handedOutMu.Lock()
	defer handedOutMu.Unlock()
	var (
		ports []int
		last  error
	)
	for range 200 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if handedOut[port] {
			continue
		}
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			last = err
			continue
		}
		listener.Close()
		handedOut[port] = true
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("find free ports between %d and %d: %w", firstPort, lastPort, errors.Join(last, errors.New("too many are taken")))
}
