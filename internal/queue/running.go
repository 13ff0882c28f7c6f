package queue

// AdmitRunning is Admit for a record whose work has begun already: it is
// running, as if Take had handed it out, and that also while the partition is
// leaving. It is refused, and nothing changes, unless everything before it is
// finished, and while the partition is Resuming.
func (p *Partition) AdmitRunning(offset int64, lane Lane) (s Slot, ok bool) {
	if p.count > 0 || p.past != nil {
		return none, false
	}
	if s, ok = p.Admit(offset, lane); !ok {
		return none, false
	}
	p.ready.popBack()
	p.records[s].state = Running
	p.running++
	return s, true
}

// popBack takes out the slot pushed last.
func (r *ring) popBack() { r.n-- }
