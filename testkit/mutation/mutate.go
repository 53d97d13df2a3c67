package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// mutant is a file with one planted bug.
type mutant struct {
	file     string // below the package
	line     int
	function string // in which it is
	from, to int    // what is replaced of the file
	text     string // by this
	source   []byte // of the file as it is
	nth      int    // of those that read the same in their function, from 1
}

// was and is are the line, or the first of several, before and after.
func (m mutant) was() string { return strings.TrimSpace(lineAt(m.source, m.from)) }
func (m mutant) is() string {
	start := strings.LastIndexByte(string(m.source[:m.from]), '\n') + 1
	return strings.TrimSpace(lineAt(m.mutated(), start))
}

func (m mutant) mutated() []byte {
	return append(append(append([]byte{}, m.source[:m.from]...), m.text...), m.source[m.to:]...)
}

// key names the mutant by what it is, so that it stays the same when lines move.
func (m mutant) key() string {
	key := m.file + " " + m.function + ": " + m.was() + " => " + m.is()
	if m.nth > 1 {
		key += " #" + strconv.Itoa(m.nth)
	}
	return key
}

func lineAt(source []byte, at int) string {
	start := strings.LastIndexByte(string(source[:at]), '\n') + 1
	line, _, _ := strings.Cut(string(source[start:]), "\n")
	return line
}

// swaps are the operators that are taken for each other: a bound a little off, a condition
// turned round, the wrong sum.
var swaps = map[token.Token][]string{ //nolint:exhaustive // the rest is left as it is
	token.LSS: {"<=", ">="}, token.LEQ: {"<", ">"}, token.GTR: {">=", "<="}, token.GEQ: {">", "<"},
	token.EQL: {"!="}, token.NEQ: {"=="}, token.LAND: {"||"}, token.LOR: {"&&"},
	token.ADD: {"-"}, token.SUB: {"+"}, token.MUL: {"/"}, token.QUO: {"*"}, token.REM: {"*"},
	token.ADD_ASSIGN: {"-="}, token.SUB_ASSIGN: {"+="}, token.INC: {"--"}, token.DEC: {"++"},
}

// mutantsOf plants each bug into each file of a package that is no test.
func mutantsOf(dir string) ([]mutant, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var all []mutant
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, file, source, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		p := planter{set: set, name: filepath.Base(file), source: source}
		for _, d := range tree.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				p.function = f.Name.Name
				ast.Inspect(f.Body, p.visit)
			}
		}
		all = append(all, p.mutants...)
	}
	same := map[string]int{}
	for i := range all {
		key := all[i].key()
		same[key]++
		all[i].nth = same[key]
	}
	return all, nil
}

// planter takes down the mutants of a file.
type planter struct {
	set      *token.FileSet
	name     string
	function string
	source   []byte
	mutants  []mutant
}

func (p *planter) plant(from, to token.Pos, text string) {
	at := p.set.Position(from)
	p.mutants = append(p.mutants, mutant{p.name, at.Line, p.function, at.Offset, p.set.Position(to).Offset, text, p.source, 0})
}

func (p *planter) text(n ast.Node) string {
	return string(p.source[p.set.Position(n.Pos()).Offset:p.set.Position(n.End()).Offset])
}

func (p *planter) operator(at token.Pos, op token.Token) {
	for _, other := range swaps[op] {
		p.plant(at, at+token.Pos(len(op.String())), other)
	}
}

// condition makes a condition always and never hold. What it names stays used.
func (p *planter) condition(c ast.Expr) {
	p.plant(c.Pos(), c.End(), "true || ("+p.text(c)+")")
	p.plant(c.Pos(), c.End(), "false && ("+p.text(c)+")")
}

// visit plants what a node has room for. What does not compile is sorted out later.
func (p *planter) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		p.operator(n.OpPos, n.Op)
	case *ast.IncDecStmt:
		p.operator(n.TokPos, n.Tok)
		p.plant(n.Pos(), n.End(), "")
	case *ast.AssignStmt:
		p.operator(n.TokPos, n.Tok)
		if n.Tok != token.DEFINE {
			p.plant(n.Pos(), n.End(), "")
		}
	case *ast.ExprStmt, *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt:
		p.plant(n.Pos(), n.End(), "")
	case *ast.UnaryExpr:
		if n.Op == token.NOT || n.Op == token.SUB {
			p.plant(n.OpPos, n.X.Pos(), "")
		}
	case *ast.IfStmt:
		p.condition(n.Cond)
	case *ast.CaseClause:
		for _, c := range n.List {
			if _, compares := c.(*ast.BinaryExpr); compares {
				p.condition(c)
			}
		}
	case *ast.BasicLit:
		if v, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 0, 62); n.Kind == token.INT && err == nil {
			p.plant(n.Pos(), n.End(), strconv.FormatInt(v+1, 10))
			p.plant(n.Pos(), n.End(), strconv.FormatInt(v-1, 10))
		}
	case *ast.ReturnStmt:
		if len(n.Results) == 2 {
			p.plant(n.Results[0].Pos(), n.End(), p.text(n.Results[1])+", "+p.text(n.Results[0]))
		}
	case *ast.Ident:
		if other, ok := map[string]string{"true": "false", "false": "true", "min": "max", "max": "min"}[n.Name]; ok {
			p.plant(n.Pos(), n.End(), other)
		}
	}
	return true
}
