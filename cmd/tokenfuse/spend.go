package main

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/ledger"
)

// spendRoute answers GET /dev/spend: what the trailing hour cost.
func spendRoute(l *ledger.Ledger) http.HandlerFunc {
	type amount struct {
		Calls     int64  `json:"calls"`
		USD       string `json:"usd"` // a decimal, exact
		Abandoned int64  `json:"abandoned"`
		Estimated int64  `json:"estimated"`
	}
	show := func(a ledger.Amount) amount {
		return amount{a.Calls, a.Cost.String(), a.Abandoned, a.Estimated}
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			http.Error(w, "GET it", http.StatusMethodNotAllowed)
			return
		}
		to := time.Now().Add(time.Microsecond)
		sum, err := l.Sum(r.Context(), to.Add(-time.Hour), to)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		view := struct {
			From     time.Time         `json:"from"`
			To       time.Time         `json:"to"`
			TotalUSD string            `json:"total_usd"`
			Total    amount            `json:"total"`
			Tiers    map[string]amount `json:"tiers"`
			Features map[string]amount `json:"features"`
			Models   map[string]amount `json:"models"`
			Top      []any             `json:"top"`
		}{sum.From.UTC(), sum.To.UTC(), sum.Total.Cost.String(), show(sum.Total), map[string]amount{}, map[string]amount{}, map[string]amount{}, []any{}}
		for into, from := range map[*map[string]amount]map[string]ledger.Amount{&view.Tiers: sum.Tiers, &view.Features: sum.Features, &view.Models: sum.Models} {
			for name, a := range from {
				(*into)[name] = show(a)
			}
		}
		for _, s := range sum.Top {
			view.Top = append(view.Top, struct {
				Identity string `json:"identity"`
				amount
			}{s.Identity, show(s.Amount)})
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(view)
	}
}
