package fake

// One broker at a time writes a data directory. Two would overwrite each other's segments and offsets without noticing,
// and different ports do not keep them apart. The lock is the operating system's, on an open file: it ends with the
// process however that dies, so a crash leaves nothing to clean up.

import (
	"errors"
	"os"
	"path/filepath"
)

// ErrDataDirInUse is what [Start] answers, wrapped, when another broker has the data directory.
var ErrDataDirInUse = errors.New("another broker is using it")

const lockFile = "broker.lock"

type dirLock struct{ file *os.File }

func lockDir(dir string) (*dirLock, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := tryLock(f); err != nil {
		f.Close()
		return nil, err
	}
	return &dirLock{f}, nil
}

// unlock gives the directory back; the file stays, since removing it would let a third broker lock a new file of the same
// name while the second waits on the old one.
func (l *dirLock) unlock() {
	if l != nil {
		l.file.Close()
	}
}
