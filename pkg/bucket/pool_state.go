package bucket

import "context"

// poolState is what a pool's item says.
type poolState struct {
	tat     micros
	credits micros // given back so far
	cleared micros // when its debt was last forgiven; 0: never
}

// slot is where a pool's state is in its item.
func (p *Pool) slot() slot { return p.limit.of("") }

// learn remembers the state that a write came upon or left.
func (p *Pool) learn(w written) (poolState, error) {
	var s poolState
	in := p.slot()
	for attr, to := range map[string]*micros{in.tat(): &s.tat, in.credits(): &s.credits, in.cleared(): &s.cleared} {
		var err error
		if *to, err = w.item.micros(attr); err != nil {
			return s, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = s
	if w.applied {
		p.denied = 0
	}
	return s, nil
}

// PoolState is a pool at a moment.
type PoolState struct {
	// Status is the state of the burst: Limit.Capacity is the burst, Limit.Period how
	// long it takes to refill.
	Status
	// Debt is what was used beyond the burst, rounded up; 0: there is none. Until it
	// is refilled nothing is admitted.
	Debt int64

	tat micros
}

// State asks the store for a pool's state.
func (p *Pool) State(ctx context.Context) (PoolState, error) {
	s, err := p.b.Peek(ctx, p.key)
	if err != nil {
		return PoolState{}, err
	}
	tat := s.tats[p.slot().tat()]
	p.mu.Lock()
	p.last.tat = tat
	p.mu.Unlock()
	return PoolState{Status: p.limit.status(tat, s.now), Debt: p.debt(tat, s.now), tat: tat}, nil
}

// Refresh asks the store how much of the burst is committed, and gives Used.
func (p *Pool) Refresh(ctx context.Context) (float64, error) {
	if _, err := p.State(ctx); err != nil {
		return 0, err
	}
	return p.Used(), nil
}
