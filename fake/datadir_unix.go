//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package fake

import (
	"errors"
	"os"
	"syscall"
)

// tryLock takes the lock or answers ErrDataDirInUse at once.
func tryLock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrDataDirInUse
	}
	return err
}
