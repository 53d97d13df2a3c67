// Package version says which tokenfuse this is.
package version

// Number is the version by Semantic Versioning, without a v. With -dev it is what
// becomes that version.
//
// It is written here, since a build of the functions cannot know it: `sam build`
// copies the source without its history, and two builds of one source must give the
// same bytes. Reading it costs a start nothing. A test holds it to CHANGELOG.md.
const Number = "0.1.0-dev"
