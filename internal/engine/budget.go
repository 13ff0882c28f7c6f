package engine

// Budget limits how many records may be dead-lettered because their
// deliveries are exhausted, so that an outage, in which everything fails, is
// not taken for a thousand bad records (P-6).
type Budget struct {
	Burst     int     // how many in a row, at most
	PerAccept float64 // how many more each accepted record allows
}

// tokens is the budget as it stands. It starts full.
type tokens struct {
	Budget
	left float64
}

func (b *tokens) init(budget Budget) { b.Budget, b.left = budget, float64(budget.Burst) }

func (b *tokens) refill(accepted int) {
	if b.left < float64(b.Burst) {
		b.left = min(b.left+float64(accepted)*b.PerAccept, float64(b.Burst))
	}
}

func (b *tokens) take() bool {
	// Half a refill's rounding must not cost a whole token.
	if b.left < 1-1e-9 {
		return false
	}
	b.left--
	return true
}
