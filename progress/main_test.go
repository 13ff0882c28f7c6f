package progress_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain lets properties be checked more often than rapid does by itself,
// unless a number is asked for. A check takes microseconds here.
func TestMain(m *testing.M) {
	flag.Parse()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "rapid.checks" })
	if !asked {
		checks := "3000"
		if testing.Short() {
			checks = "300"
		}
		if err := flag.Set("rapid.checks", checks); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
