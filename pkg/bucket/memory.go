package bucket

import (
	"strings"

	lru "github.com/hashicorp/golang-lru/v2"
)

// memory is what a process remembers of identities it has seen: enough to guess
// which form of a write will succeed, and to answer repeated denials without a
// write. It is never trusted to admit.
type memory struct {
	seen *lru.Cache[string, seen]
}

// seen is an identity's TATs by attribute, as the store last gave them. It is
// not changed once stored.
type seen struct {
	tats   map[string]micros
	opens  map[string]int64 // open calls of clients, by attribute
	denied micros           // when these TATs led to a denial; 0: they did not
}

// denialMemory is how long a denial is answered from memory. It bounds how late a
// process learns of a clear, or of what another process settled.
const denialMemory = second

// newMemory keeps that many identities, at least one: the last used. None is dropped
// for its age: that a limit was running hours ago says that it is full by now.
func newMemory(identities int) *memory {
	kept, _ := lru.New[string, seen](identities) // it fails for less than one
	return &memory{kept}
}

func (m *memory) get(key string) seen {
	s, _ := m.seen.Get(key)
	return s
}

// put remembers an item; denied is 0 if it did not lead to a denial.
func (m *memory) put(key string, it item, denied micros) {
	m.seen.Add(key, see(it, denied))
}

// see reads what is remembered of an item.
func see(it item, denied micros) seen {
	s := seen{tats: make(map[string]micros, len(it)), denied: denied}
	for attr := range it {
		isTAT, isOpen := strings.HasPrefix(attr, tatPrefix), strings.HasPrefix(attr, attrOpen+"_")
		if !isTAT && !isOpen {
			continue
		}
		n, err := it.number(attr)
		switch {
		case err != nil:
		case isTAT:
			s.tats[attr] = micros(n)
		default:
			if s.opens == nil {
				s.opens = make(map[string]int64)
			}
			s.opens[attr] = n
		}
	}
	return s
}

// recentlyDenied reports whether s led to a denial a moment ago.
func (s seen) recentlyDenied(now micros) bool {
	return s.denied != 0 && now >= s.denied && now-s.denied < denialMemory
}
