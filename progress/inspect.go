package progress

// Info is what [Inspect] finds out about a text.
type Info struct {
	Format  Format `json:"format"`
	Offset  int64  `json:"offset"`
	Horizon int64  `json:"horizon"`
	Units   int    `json:"units"` // UTF-16
	Bytes   int    `json:"bytes"` // UTF-8
	Wide    bool   `json:"wide,omitempty"`

	Code   Code   `json:"code,omitempty"`
	Reason string `json:"reason,omitempty"` // why the text can't be read

	Progress *Progress `json:"progress,omitempty"` // nil without a text, and if it can't be read
}

// Inspect tells about the metadata of a commit of offset. It does not need to
// know the partition.
func Inspect(text string, offset int64) Info {
	p, format, err := decode(text, offset, nil)
	_, wide := isOwn(text)
	i := Info{Format: format, Offset: offset, Horizon: p.Horizon(), Units: utf16Units(text), Bytes: len(text), Wide: wide}
	switch {
	case err != nil:
		i.Code, i.Reason = codeOf(err), err.Error()
	case text != "":
		i.Progress = &p
	}
	return i
}
