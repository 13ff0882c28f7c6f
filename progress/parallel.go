package progress

// AppendParallelConsumer appends p in the format of Parallel Consumer.
func AppendParallelConsumer(dst []byte, p *Progress, maxUnits int) ([]byte, Fit) {
	return dst, Fit{Horizon: p.Offset}
}
