//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package fake

import "os"

// tryLock does nothing: the standard library has no file lock for this operating system.
func tryLock(*os.File) error { return nil }
