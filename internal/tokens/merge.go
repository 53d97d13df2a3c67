package tokens

// merger splits pieces into tokens by byte-pair merging. At first every byte is a part of
// its own. Then, of all pairs of neighbours that together are a token, the pair whose token
// has the lowest rank is joined (the leftmost of several), until there is no such pair.
//
// The parts are a doubly linked list and the pairs a binary heap. A piece of n
// bytes starts with at most n-1 pairs, and each of at most n-1 joins makes at
// most two new ones, so that at most 3n pairs ever enter the heap: O(n log n),
// where a search for the lowest pair before each join would be quadratic. Pairs
// that a join has outdated stay in the heap and are skipped when they surface.
//
// A merger is the scratch memory of one goroutine at a time.
type merger struct {
	parts []part
	pairs []pair
	work  int // pairs taken from heaps so far; tests hold it to its bound
}

// part is a run of bytes of the piece. Its index is the offset of its first.
type part struct {
	rank       uint32 // of the token that it and its next would make
	prev, next int32  // the next is also its end; -1 before the first
}

// pair is a possible join, the rank above the offset of the left part, so that
// their order as numbers is the order of joining.
type pair uint64

func newPair(rank uint32, left int32) pair { return pair(rank)<<32 | pair(left) }
func (p pair) rank() uint32                { return uint32(p >> 32) }
func (p pair) left() int32                 { return int32(uint32(p)) }

// merge splits piece, which must not be empty, and gives the number of tokens.
func (m *merger) merge(v *vocabulary, piece string) int {
	n := len(piece)
	if cap(m.parts) <= n {
		m.parts = make([]part, n+1)
	}
	m.parts = m.parts[:n+1] // the last marks the end
	m.pairs = m.pairs[:0]
	for i := range int32(n) {
		rank := uint32(noRank)
		if int(i)+2 <= n {
			rank = v.rank(piece[i : i+2])
		}
		m.parts[i] = part{rank: rank, prev: i - 1, next: i + 1}
		if rank != noRank {
			m.pairs = append(m.pairs, newPair(rank, i))
		}
	}
	m.parts[n] = part{rank: noRank, prev: int32(n) - 1, next: int32(n)}
	for i := len(m.pairs)/2 - 1; i >= 0; i-- {
		m.sink(i)
	}

	tokens := n
	for len(m.pairs) > 0 {
		lowest := m.pop()
		left := lowest.left()
		if m.parts[left].rank != lowest.rank() {
			continue // outdated
		}
		right := m.parts[left].next
		next := m.parts[right].next
		m.parts[right].rank = noRank // outdates its pairs: it is no part any more
		m.parts[left].next = next
		m.parts[next].prev = left
		tokens--
		m.pairUp(v, piece, left)
		if prev := m.parts[left].prev; prev >= 0 {
			m.pairUp(v, piece, prev)
		}
	}
	return tokens
}

// pairUp looks up what left and its next part make together.
func (m *merger) pairUp(v *vocabulary, piece string, left int32) {
	right := m.parts[left].next
	rank := uint32(noRank)
	if int(right) < len(piece) {
		rank = v.rank(piece[left:m.parts[right].next])
	}
	m.parts[left].rank = rank
	if rank != noRank {
		m.push(newPair(rank, left))
	}
}

// end gives the offset where the first count tokens of the last piece end.
func (m *merger) end(count int) int {
	at := int32(0)
	for range count {
		at = m.parts[at].next
	}
	return int(at)
}

func (m *merger) push(p pair) {
	m.pairs = append(m.pairs, p)
	i := len(m.pairs) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if m.pairs[parent] <= p {
			break
		}
		m.pairs[i] = m.pairs[parent]
		i = parent
	}
	m.pairs[i] = p
}

func (m *merger) pop() pair {
	m.work++
	lowest, last := m.pairs[0], len(m.pairs)-1
	m.pairs[0] = m.pairs[last]
	m.pairs = m.pairs[:last]
	if last > 1 {
		m.sink(0)
	}
	return lowest
}

// sink moves the pair at i down to where no pair below it is lower.
func (m *merger) sink(i int) {
	p := m.pairs[i]
	for {
		child := 2*i + 1
		if child >= len(m.pairs) {
			break
		}
		if child+1 < len(m.pairs) && m.pairs[child+1] < m.pairs[child] {
			child++
		}
		if p <= m.pairs[child] {
			break
		}
		m.pairs[i] = m.pairs[child]
		i = child
	}
	m.pairs[i] = p
}
