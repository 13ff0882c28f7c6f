package kafkatest

// Java programs beside the broker: members of groups that other libraries run.

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Java returns a command that runs a Java program of one source file, with the jar files that pom.xml beside it names on its
// class path; kafka.sh copies them once. source is relative to test/kafka. The test is skipped or fails as with [Start] when
// something to do that with is missing: the Java that runs Kafka, with its compiler, or, the first time, Maven.
//
// The program must end when its standard input does, so that it does not outlive the test binary.
func Java(t testing.TB, source string, arguments ...string) *exec.Cmd {
	t.Helper()
	installed := require(t)
	file := filepath.Join(installed.folder, filepath.FromSlash(source))
	lib, err := jars(installed, filepath.Dir(file))
	unless(t, err)
	options := []string{
		// As for the broker: it does not live long enough for more.
		"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xmx256m",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", filepath.Join(lib, "*"), file,
	}
	return exec.Command(installed.java, append(options, arguments...)...)
}

// jars returns the folder of the jar files that the pom.xml in a folder names.
func jars(installed installation, folder string) (string, error) {
	modules, err := exec.Command(installed.java, "--list-modules").Output()
	if err != nil {
		return "", fmt.Errorf("%s --list-modules: %w", installed.java, err)
	}
	if !strings.Contains(string(modules), "jdk.compiler@") {
		return "", fmt.Errorf("%w: %s has no compiler (module jdk.compiler): install a JDK, or set JAVA_HOME to one", errMissing, installed.java)
	}
	var said strings.Builder
	script := exec.Command("bash", filepath.Join(installed.folder, "kafka.sh"), "jars", folder)
	script.Stderr = &said
	output, err := script.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == exitMissing {
		return "", fmt.Errorf("%w: %s", errMissing, strings.TrimSpace(said.String()))
	}
	if err != nil {
		return "", fmt.Errorf("kafka.sh jars %s: %w\n%s", folder, err, &said)
	}
	return strings.TrimSpace(string(output)), nil
}
