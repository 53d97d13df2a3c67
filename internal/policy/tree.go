package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/tokenfuse/tokenfuse/internal/version"
)

// TreeSuffix is what the name of a file's tree has after that of the file.
const TreeSuffix = ".tree"

// treeForm begins each tree. It changes with the form, and with the version: another one
// may understand YAML in another way.
const treeForm = "tokenfuse tree 2 of " + version.Number + "\n"

// tags are those that a right file has, by their numbers in a tree.
var tags = []string{"!!str", "!!int", "!!float", "!!bool", "!!map", "!!seq", "!!null"}

// Tree is what YAML makes of a file's text, if that is right. A function that finds it
// beside the file, as a file of its own, need not read YAML, which would be an eighth of
// its start; all that is checked is checked all the same. A tree is sealed together with
// the text by a hash: beside another text it counts for nothing.
func Tree(data []byte) ([]byte, error) {
	if _, err := Parse(data); err != nil {
		return nil, err
	}
	root, _ := (&reader{lines: map[string]int{}}).document(data)
	nodes := 0
	written, err := appendNode(nil, root.node, &nodes)
	if err != nil {
		return nil, err
	}
	written = append(binary.AppendUvarint(nil, uint64(nodes)), written...)
	return slices.Concat([]byte(treeForm), seal(data, written), written), nil
}

// seal is the hash of a text and of its tree.
func seal(data, written []byte) []byte {
	of := sha256.Sum256(data)
	both := sha256.Sum256(append(of[:], written...))
	return both[:]
}

// appendNode appends a node: kind, tag, line, value, and the nodes in it.
func appendNode(to []byte, n *yaml.Node, nodes *int) ([]byte, error) {
	tag := slices.Index(tags, n.Tag)
	if tag < 0 {
		return nil, fmt.Errorf("line %d has the tag %s, which no right file has", n.Line, n.Tag)
	}
	*nodes++
	to = append(to, byte(n.Kind), byte(tag))
	for _, number := range []int{n.Line, len(n.Value), len(n.Content)} {
		to = binary.AppendUvarint(to, uint64(number))
	}
	to = append(to, n.Value...)
	for _, below := range n.Content {
		var err error
		if to, err = appendNode(to, below, nodes); err != nil {
			return nil, err
		}
	}
	return to, nil
}

// treeBeside gives the root of the tree that lies beside a file; nil if there is none, or
// one of another text or form.
func treeBeside(file string, data []byte) *yaml.Node {
	tree, err := os.ReadFile(file + TreeSuffix)
	if err != nil {
		return nil
	}
	return treeOf(tree, data)
}

func treeOf(tree, data []byte) *yaml.Node {
	sealed, ok := bytes.CutPrefix(tree, []byte(treeForm))
	if !ok || len(sealed) < sha256.Size || !bytes.Equal(sealed[:sha256.Size], seal(data, sealed[sha256.Size:])) {
		return nil
	}
	u := unwritten{rest: sealed[sha256.Size:]}
	u.text = string(u.rest)
	u.nodes = make([]yaml.Node, u.number())
	u.links = make([]*yaml.Node, len(u.nodes))
	return u.node()
}

// unwritten is what is still to be read of a tree, which is as Tree has written it: it is
// sealed. Its nodes are made at once.
type unwritten struct {
	rest  []byte
	text  string // all of it, whose parts the values are
	nodes []yaml.Node
	links []*yaml.Node
}

func (u *unwritten) number() int {
	n, size := binary.Uvarint(u.rest)
	u.rest = u.rest[size:]
	return int(n) //nolint:gosec // of a line, a length or a count
}

func (u *unwritten) node() *yaml.Node {
	n := &u.nodes[0]
	u.nodes = u.nodes[1:]
	n.Kind, n.Tag = yaml.Kind(u.rest[0]), tags[u.rest[1]]
	u.rest = u.rest[2:]
	n.Line = u.number()
	value, content := u.number(), u.number()
	n.Value = u.text[len(u.text)-len(u.rest):][:value]
	u.rest = u.rest[value:]
	n.Content, u.links = u.links[:content:content], u.links[content:]
	for i := range n.Content {
		n.Content[i] = u.node()
	}
	return n
}
