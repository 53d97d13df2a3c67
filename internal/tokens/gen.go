//go:build ignore

// This program writes the embedded tables of package tokens:
//
//	o200k_base.bin, cl100k_base.bin   the vocabularies
//	unicode16.bin                     the class of every code point
//
// The vocabularies come from the files that OpenAI publishes, as the Go module
// loader carries them. The module is fetched through the go command, which
// checks its sum, and the files are checked against their sha256. The output
// depends on nothing else, so that running it again changes no byte.
package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/rangetable"
)

const loader = "github.com/pkoukk/tiktoken-go-loader@v0.0.2"

// vocabularies are the sources by name with the sha256 that OpenAI's tiktoken
// expects of them too.
var vocabularies = map[string]string{
	"o200k_base":  "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
	"cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
}

func main() {
	log.SetFlags(0)
	out, err := exec.Command("go", "mod", "download", "-json", loader).Output()
	if err != nil {
		log.Fatalf("go mod download %s: %v\n%s", loader, err, out)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		log.Fatal(err)
	}
	for name, sum := range vocabularies {
		source, err := os.ReadFile(filepath.Join(module.Dir, "assets", name+".tiktoken"))
		if err != nil {
			log.Fatal(err)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(source)); got != sum {
			log.Fatalf("%s.tiktoken: sha256 %s, want %s", name, got, sum)
		}
		packed, err := packVocabulary(source)
		if err != nil {
			log.Fatalf("%s.tiktoken: %v", name, err)
		}
		write(name+".bin", packed)
	}
	write("unicode16.bin", packClasses())
}

func write(name string, data []byte) {
	if err := os.WriteFile(name, data, 0o644); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%x  %s\n", sha256.Sum256(data), name)
}

// packVocabulary turns lines of "<base64 of a token> <rank>" into the number of
// tokens (4 bytes, little endian), the length of each (1 byte) and their bytes,
// both in the order of the ranks.
func packVocabulary(source []byte) ([]byte, error) {
	var lengths, tokens []byte
	lines := bufio.NewScanner(bytes.NewReader(source))
	for rank := 0; lines.Scan(); rank++ {
		encoded, number, _ := strings.Cut(lines.Text(), " ")
		token, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return nil, err
		}
		if got, err := strconv.Atoi(number); err != nil || got != rank || len(token) == 0 || len(token) > 255 {
			return nil, fmt.Errorf("line %d is not the token of rank %d", rank+1, rank)
		}
		lengths = append(lengths, byte(len(token)))
		tokens = append(tokens, token...)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	packed := binary.LittleEndian.AppendUint32(nil, uint32(len(lengths)))
	return append(append(packed, lengths...), tokens...), nil
}

// The classes, as split.go names them.
const (
	upperLetter = 1 << iota
	lowerLetter
	otherLetter
	mark
	number
	space
	newline
	other
)

// packClasses gives one byte for each block of 256 code points, the number of
// its page, and then the pages: 256 bytes, the classes of its code points.
// Blocks with equal content share a page; page 0 is that of ASCII.
func packClasses() []byte {
	var index, pages []byte
	seen := map[string]byte{}
	for block := rune(0); block <= unicode.MaxRune; block += 256 {
		page := make([]byte, 256)
		for i := range page {
			page[i] = class(block + rune(i))
		}
		at, ok := seen[string(page)]
		if !ok {
			if len(seen) == 256 {
				log.Fatal("more than 256 different pages")
			}
			at = byte(len(seen))
			seen[string(page)] = at
			pages = append(pages, page...)
		}
		index = append(index, at)
	}
	return append(index, pages...)
}

// class gives the class of r in Unicode 16.0, the version that tiktoken's
// regular expressions know. The tables of Go 1.26 are those of 15.0; a later Go
// is held to what 15.0 had assigned.
func class(r rune) byte {
	for _, a := range addedIn16 {
		if a.first <= r && r <= a.last {
			return a.class
		}
	}
	if !unicode.Is(assignedIn15, r) {
		return other
	}
	switch {
	case unicode.In(r, unicode.Lu, unicode.Lt):
		return upperLetter
	case unicode.Is(unicode.Ll, r):
		return lowerLetter
	case unicode.Is(unicode.L, r):
		return otherLetter
	case unicode.Is(unicode.M, r):
		return mark
	case unicode.Is(unicode.N, r):
		return number
	case r == '\r' || r == '\n':
		return newline
	case unicode.Is(unicode.White_Space, r):
		return space
	}
	return other
}

var assignedIn15 = rangetable.Assigned("15.0.0")

// addedIn16 are the letters, marks and numbers that Unicode 15.1 and 16.0 added;
// they changed the class of no older one.
var addedIn16 = []struct {
	first, last rune
	class       byte
}{
	{0x897, 0x897, mark},
	{0x1C89, 0x1C89, upperLetter},
	{0x1C8A, 0x1C8A, lowerLetter},
	{0xA7CB, 0xA7CC, upperLetter},
	{0xA7CD, 0xA7CD, lowerLetter},
	{0xA7DA, 0xA7DA, upperLetter},
	{0xA7DB, 0xA7DB, lowerLetter},
	{0xA7DC, 0xA7DC, upperLetter},
	{0x105C0, 0x105F3, otherLetter},
	{0x10D40, 0x10D49, number},
	{0x10D4A, 0x10D4F, otherLetter},
	{0x10D50, 0x10D65, upperLetter},
	{0x10D69, 0x10D6D, mark},
	{0x10D6F, 0x10D6F, otherLetter},
	{0x10D70, 0x10D85, lowerLetter},
	{0x10EC2, 0x10EC4, otherLetter},
	{0x10EFC, 0x10EFC, mark},
	{0x11380, 0x11389, otherLetter},
	{0x1138B, 0x1138B, otherLetter},
	{0x1138E, 0x1138E, otherLetter},
	{0x11390, 0x113B5, otherLetter},
	{0x113B7, 0x113B7, otherLetter},
	{0x113B8, 0x113C0, mark},
	{0x113C2, 0x113C2, mark},
	{0x113C5, 0x113C5, mark},
	{0x113C7, 0x113CA, mark},
	{0x113CC, 0x113D0, mark},
	{0x113D1, 0x113D1, otherLetter},
	{0x113D2, 0x113D2, mark},
	{0x113D3, 0x113D3, otherLetter},
	{0x113E1, 0x113E2, mark},
	{0x116D0, 0x116E3, number},
	{0x11BC0, 0x11BE0, otherLetter},
	{0x11BF0, 0x11BF9, number},
	{0x11F5A, 0x11F5A, mark},
	{0x13460, 0x143FA, otherLetter},
	{0x16100, 0x1611D, otherLetter},
	{0x1611E, 0x1612F, mark},
	{0x16130, 0x16139, number},
	{0x16D40, 0x16D6C, otherLetter},
	{0x16D70, 0x16D79, number},
	{0x18CFF, 0x18CFF, otherLetter},
	{0x1CCF0, 0x1CCF9, number},
	{0x1E5D0, 0x1E5ED, otherLetter},
	{0x1E5EE, 0x1E5EF, mark},
	{0x1E5F0, 0x1E5F0, otherLetter},
	{0x1E5F1, 0x1E5FA, number},
	{0x2EBF0, 0x2EE5D, otherLetter},
}
