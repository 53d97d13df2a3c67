//go:build !linux

package main

import "errors"

// shareProcessor needs Linux.
func shareProcessor(int, float64) (release func(), how string, err error) {
	return nil, "", errors.New("only Linux can share out a processor as Lambda does")
}
