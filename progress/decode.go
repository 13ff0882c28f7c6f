package progress

import (
	"encoding/json"
	"strings"
	"unicode"
)

// Decode reads the metadata of a commit of offset, made for the partition of
// b. An empty text is an empty progress of format [None], and so is any text
// next to an offset below 0, which stands for no commit.
//
// An error is a [*Reason]: then nothing is known of the records from offset
// on. It comes with the format that the text seems to have, [Unknown] if none.
//
// Only fronta's texts say for which partition they were made. Those of
// Parallel Consumer do not even say for which offset, and have no checksum. No
// text knows where the log ends: a horizon beyond its end must be refused by
// the caller.
//
// What Decode allocates is bounded by the length of the text, whatever the
// text claims: 1,200 bytes for each byte of it, and 2,000 and 150 KiB for
// those of Parallel Consumer that are compressed. To decompress takes up to
// 9 MiB besides, which are used again.
func Decode(text string, offset int64, b Binding) (Progress, Format, error) {
	tag := b.tag()
	return decode(text, offset, &tag)
}

// decode leaves open which partition it is if tag is nil.
func decode(text string, offset int64, tag *uint32) (p Progress, f Format, err error) {
	if text != "" && offset >= 0 {
		if p, f, err = decodeAny(text, offset, tag); err == nil {
			return p, f, nil
		}
	}
	return Progress{Offset: offset, Epoch: -1, Suspect: -1}, f, err
}

func decodeAny(text string, offset int64, tag *uint32) (p Progress, f Format, err error) {
	if own, _ := isOwn(text); own {
		b, err := data(text)
		if err == nil {
			p, err = parse(b, offset, tag)
		}
		return p, Fronta, err
	}
	b, ok := fromBase64(text, false)
	if ok && len(b) > 0 {
		if b[0] == atleonVersion {
			if p, err = decodeAtleon(text, b, offset); err == nil || !isStreams(b) || codeOf(err) != Damaged {
				return p, AtleonV1, err
			}
		}
		if e, ok := magic(b[0]).encoding(); ok && len(text)%4 == 0 {
			p, err = decodeParallel(text, b, e, offset)
			return p, ParallelConsumer, err
		}
	}
	return Progress{}, Unknown, refuse(Foreign, "it is no progress in a format that is known here, but %s", guess(text, b))
}

// isStreams says whether data has the form of what Kafka Streams stores: a
// version and a time in 8 bytes, followed in version 2 by more.
func isStreams(b []byte) bool {
	return len(b) == 9 && b[0] == 1 || len(b) >= 9 && b[0] == 2
}

// hasUUID says whether text has an id in the form of RFC 9562.
func hasUUID(text string) bool {
	const form = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
	is := func(s string) bool {
		for i := range len(form) {
			if form[i] == '-' && s[i] != '-' || form[i] == 'x' && !strings.ContainsRune("0123456789abcdefABCDEF", rune(s[i])) {
				return false
			}
		}
		return true
	}
	for ; len(text) >= len(form); text = text[1:] {
		if is(text) {
			return true
		}
	}
	return false
}

// guess says what a text is that has none of the formats. b is what it is in
// base64, nil if it isn't.
func guess(text string, b []byte) string {
	switch {
	case strings.HasPrefix(text, "kgo-"):
		return "a member's id, which the client franz-go stores if it is not told otherwise"
	case hasUUID(text):
		return "an id"
	case len(b) > 0 && isStreams(b):
		return "Kafka Streams' time of a partition"
	case strings.ContainsAny(text[:1], "{[\"") && json.Valid([]byte(text)):
		return "JSON"
	case strings.ContainsFunc(text, func(r rune) bool { return r == unicode.ReplacementChar || unicode.IsControl(r) }):
		return "bytes that are no text"
	case len(b) > 0 && (len(text) > 32 || strings.ContainsAny(text, "+/=")):
		return "base64 of something else"
	default:
		return "plain text"
	}
}
