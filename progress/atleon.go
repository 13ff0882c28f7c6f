package progress

// AppendAtleonV1 appends p in the format of Atleon.
func AppendAtleonV1(dst []byte, p *Progress, maxUnits int) ([]byte, Fit) {
	return dst, Fit{Horizon: p.Offset}
}
