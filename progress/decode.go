package progress

// Decode reads the metadata of a commit of offset, for the partition of b. An
// empty text is an empty progress of format [None].
//
// An error is a [*Reason]; then nothing is known of the records from offset on.
// It comes with the format that the text seems to have, [Unknown] if none.
// Whatever the text, Decode allocates at most 1,100 bytes for each of its
// bytes.
//
// Only fronta's texts say themselves for which partition and offset they were
// written. None says where the log ends: a horizon beyond the end of the log
// must be refused by the caller.
func Decode(text string, offset int64, b Binding) (Progress, Format, error) {
	tag := b.tag()
	return decode(text, offset, &tag)
}

// decode leaves the partition unchecked if tag is nil.
func decode(text string, offset int64, tag *uint32) (Progress, Format, error) {
	nothing := Progress{Offset: offset, Epoch: -1, Suspect: -1}
	if text == "" {
		return nothing, None, nil
	}
	if own, _ := isOwn(text); own {
		b, err := data(text)
		if err != nil {
			return nothing, Fronta, err
		}
		p, err := parse(b, offset, tag)
		if err != nil {
			return nothing, Fronta, err
		}
		return p, Fronta, nil
	}
	return nothing, Unknown, refuse(Foreign, "it is no progress in a format that is known here")
}
