package kafkatest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMain(m *testing.M) { Main(m) }

func TestProperties(t *testing.T) {
	t.Parallel()
	got := string(formatProperties(map[string]string{
		"b": "plain, with = and #",
		"a": `C:\data`,
		"c": " ž\n😀",
		"d": "",
	}))
	want := `a=C:\\data` + "\n" + `b=plain, with = and #` + "\n" + `c=\ \u017e\u000a\ud83d\ude00` + "\n" + "d=\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
	read := parseProperties("# comment=no\n\n  a=b=c \nempty=\nnothing\n")
	if diff := cmp.Diff(map[string]string{"a": "b=c", "empty": ""}, read); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
}

func TestClusterIDs(t *testing.T) {
	t.Parallel()
	for range 1000 {
		if id := newClusterID(); len(id) != 22 || id[0] == '-' {
			t.Fatalf("%q is not an id for Kafka", id)
		}
	}
}

func TestPortsAreHandedOutOnce(t *testing.T) {
	t.Parallel()
	seen := make(map[int]bool)
	for range 50 {
		ports, err := freePorts(3)
		if err != nil {
			t.Fatal(err)
		}
		for _, port := range ports {
			if seen[port] || port < firstPort || port > lastPort {
				t.Errorf("port %d", port)
			}
			seen[port] = true
		}
	}
}

func TestUsersThatKafkaWouldMisread(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]Option{
		"comma":     {WithSCRAM("a,b", "secret")},
		"bracket":   {WithSCRAM("a", "sec]ret")},
		"no name":   {WithSCRAM("", "secret")},
		"the same":  {WithSCRAM("a", "1"), WithSCRAM("a", "2")},
		"backslash": {WithSCRAM("a", `b\`)},
	} {
		if _, err := newConfig(options); err == nil || !strings.Contains(err.Error(), "user ") {
			t.Errorf("%s: %v, want an error that names the user", name, err)
		}
	}
}
