package progress

import (
	"errors"
	"fmt"
)

// Format is a way of writing progress into a commit's metadata.
type Format uint8

// The formats that [Decode] tells apart.
const (
	None             Format = iota // there is no text
	Fronta                         // fronta's own
	AtleonV1                       // Atleon's acknowledged-ahead-of-commit, version 1
	ParallelConsumer               // Parallel Consumer's offset maps
	Unknown                        // a text of something else
)

var formatNames = [...]string{None: "none", Fronta: "fronta", AtleonV1: "atleon-v1", ParallelConsumer: "parallel-consumer", Unknown: "unknown"}

// String names the format: "none", "fronta", "atleon-v1", "parallel-consumer"
// or "unknown".
func (f Format) String() string {
	if int(f) < len(formatNames) {
		return formatNames[f]
	}
	return fmt.Sprintf("Format(%d)", f)
}

// MarshalText is [Format.String]. An unnamed format is an error.
func (f Format) MarshalText() ([]byte, error) {
	if int(f) >= len(formatNames) {
		return nil, fmt.Errorf("there is no progress format %d", f)
	}
	return []byte(formatNames[f]), nil
}

// UnmarshalText reads what MarshalText writes.
func (f *Format) UnmarshalText(text []byte) error {
	for i, name := range formatNames {
		if string(text) == name {
			*f = Format(i)
			return nil
		}
	}
	return fmt.Errorf("there is no progress format %q", text)
}

// Code is the class of a [Reason].
type Code uint8

// Why a text can't be read, or must not be believed.
const (
	Foreign        Code = iota + 1 // no format of this package
	Damaged                        // cut or changed: the checksum is wrong, or what is there does not end well
	Newer                          // of a version that this package does not know
	OtherOffset                    // about another committed offset
	OtherPartition                 // about another topic or partition, or a former topic of the same name
	Impossible                     // it is whole but contradicts itself, or says what can't be
	Unsupported                    // a known format in a variant that nothing can be learned from
)

var codeNames = [...]string{
	Foreign: "foreign", Damaged: "damaged", Newer: "newer", OtherOffset: "other-offset", OtherPartition: "other-partition",
	Impossible: "impossible", Unsupported: "unsupported",
}

// String names the class: "foreign", "damaged", "newer", "other-offset",
// "other-partition", "impossible" or "unsupported".
func (c Code) String() string {
	if int(c) < len(codeNames) && codeNames[c] != "" {
		return codeNames[c]
	}
	return fmt.Sprintf("Code(%d)", c)
}

// MarshalText is [Code.String]. An unnamed class is an error.
func (c Code) MarshalText() ([]byte, error) {
	if int(c) >= len(codeNames) || codeNames[c] == "" {
		return nil, fmt.Errorf("there is no class %d of reasons", c)
	}
	return []byte(codeNames[c]), nil
}

// UnmarshalText reads what MarshalText writes.
func (c *Code) UnmarshalText(text []byte) error {
	for i, name := range codeNames {
		if name != "" && string(text) == name {
			*c = Code(i)
			return nil
		}
	}
	return fmt.Errorf("there is no class %q of reasons", text)
}

// Reason is the error of a text that can't be read, or must not be believed.
// It never contains the text itself.
type Reason struct {
	Code Code
	Text string // one line, without a full stop
}

// Error is r.Text.
func (r *Reason) Error() string { return r.Text }

func refuse(c Code, format string, args ...any) error {
	return &Reason{Code: c, Text: fmt.Sprintf(format, args...)}
}

// codeOf is the class of an error of this package, 0 of another one.
func codeOf(err error) Code {
	var r *Reason
	if errors.As(err, &r) {
		return r.Code
	}
	return 0
}
