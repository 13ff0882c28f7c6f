package kafkatest

// Where Kafka is, and what a test does when it is not there: a developer's test is skipped, a build's test fails.

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf16"
)

// exitMissing is kafka.sh's exit code when Java or Maven is missing.
const exitMissing = 3

// errMissing says that the machine has nothing to run Kafka with.
var errMissing = errors.New("no Kafka can run here")

// installation is a fetched Kafka and the files of test/kafka that go with it.
type installation struct {
	folder     string // test/kafka of the project
	lib        string // the jar files
	java       string
	properties map[string]string // server.properties of folder
}

// require returns the installation, or ends the test as [Start] says.
func require(t testing.TB) installation {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped without Apache Kafka: -short is set")
	}
	switch value := os.Getenv("FRONTA_KAFKA"); strings.ToLower(value) {
	case "0", "off", "no", "false":
		t.Skipf("skipped without Apache Kafka: FRONTA_KAFKA is %s", value)
	}
	installed, err := install()
	unless(t, err)
	return installed
}

// unless ends the test if there is an error: it is skipped when something is missing on the machine, unless that is one
// for builds; otherwise it fails.
func unless(t testing.TB, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if ci, _ := strconv.ParseBool(os.Getenv("CI")); errors.Is(err, errMissing) && !ci {
		t.Skipf("skipped without Apache Kafka: %v", err)
	}
	t.Fatalf("kafkatest: %v (FRONTA_KAFKA=0 skips the tests that need Apache Kafka)", err)
}

// install fetches Kafka when it is not there yet; once for all tests of the process.
var install = sync.OnceValues(func() (installation, error) {
	folder, err := findFolder()
	if err != nil {
		return installation{}, err
	}
	script := filepath.Join(folder, "kafka.sh")
	if _, err := exec.LookPath("bash"); err != nil {
		return installation{}, fmt.Errorf("%w: %w", errMissing, err)
	}
	output, err := exec.Command("bash", script, "fetch").CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == exitMissing {
		return installation{}, fmt.Errorf("%w: %s", errMissing, strings.TrimSpace(string(output)))
	}
	if err != nil {
		return installation{}, fmt.Errorf("%s fetch: %w\n%s", script, err, output)
	}
	lib, err := exec.Command("bash", script, "path").Output()
	if err != nil {
		return installation{}, fmt.Errorf("%s path: %w", script, err)
	}
	// The script has checked that it is there and new enough; this is how it finds it.
	java := "java"
	if home := os.Getenv("JAVA_HOME"); home != "" {
		java = filepath.Join(home, "bin", "java")
	}
	text, err := os.ReadFile(filepath.Join(folder, "server.properties"))
	if err != nil {
		return installation{}, err
	}
	return installation{
		folder:     folder,
		lib:        strings.TrimSpace(string(lib)),
		java:       java,
		properties: parseProperties(string(text)),
	}, nil
})

// findFolder looks for test/kafka in the folder of the test, which Go makes the current one, and in those above it.
func findFolder() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := start; ; at = filepath.Dir(at) {
		folder := filepath.Join(at, "test", "kafka")
		if _, err := os.Stat(filepath.Join(folder, "kafka.sh")); err == nil {
			return folder, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("neither %s nor a folder above it has test/kafka/kafka.sh", start)
		}
	}
}

// parseProperties reads the part of Java's format that server.properties uses: name=value lines and comments.
func parseProperties(text string) map[string]string {
	properties := make(map[string]string)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, value, found := strings.Cut(line, "="); found && line[0] != '#' {
			properties[name] = value
		}
	}
	return properties
}

// formatProperties writes settings in Java's format, sorted. Kafka reads the file as Latin-1, where a backslash escapes.
func formatProperties(properties map[string]string) []byte {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		text.WriteString(name + "=")
		value := properties[name]
		if strings.HasPrefix(value, " ") {
			text.WriteByte('\\')
		}
		for _, r := range value {
			switch {
			case r == '\\':
				text.WriteString(`\\`)
			case r >= ' ' && r < 0x7f:
				text.WriteRune(r)
			default:
				// Two escapes for a letter beyond 16 bits, as Java has it.
				for _, unit := range utf16.AppendRune(nil, r) {
					fmt.Fprintf(&text, `\u%04x`, unit)
				}
			}
		}
		text.WriteByte('\n')
	}
	return []byte(text.String())
}

// newClusterID returns a random id in Kafka's form: 22 characters of URL-safe base64. The first one is fixed, since a
// dash in its place would be taken for an option.
func newClusterID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return "A" + base64.RawURLEncoding.EncodeToString(id[:])[1:]
}
