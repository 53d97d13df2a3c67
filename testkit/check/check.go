// Package check says in one line what a test expects. A check that fails names what it
// looked at, at the line of the test. Equal, Diff and That go on after it; OK and Must
// end the test, since what follows would make no sense.
package check

import (
	"fmt"
	"reflect"
)

// T is what the tests of testing and of rapid have in common.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// OK ends the test if there is an error.
func OK(t T, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

// Equal reports got if it is not what is wanted. The format says what it is.
func Equal[V comparable](t T, got, want V, format string, args ...any) {
	if got != want {
		t.Helper()
		t.Errorf("%s: got %s, want %s", fmt.Sprintf(format, args...), show(got), show(want))
	}
}

// Diff reports a difference that cmp.Diff(want, got) has found.
func Diff(t T, diff, format string, args ...any) {
	if diff != "" {
		t.Helper()
		t.Errorf("%s (-want +got):\n%s", fmt.Sprintf(format, args...), diff)
	}
}

// That reports a failure, in the words of format, unless ok.
func That(t T, ok bool, format string, args ...any) {
	if !ok {
		t.Helper()
		t.Errorf(format, args...)
	}
}

// Must is That, and ends the test.
func Must(t T, ok bool, format string, args ...any) {
	if !ok {
		t.Helper()
		t.Fatalf(format, args...)
	}
}

// show tells a text from a number.
func show(v any) string {
	if reflect.TypeOf(v).Kind() == reflect.String {
		return fmt.Sprintf("%q", v)
	}
	return fmt.Sprintf("%+v", v)
}
