package tokens

import (
	"strings"
	"testing"
)

const english = "When the provider fails, a call that gave the caller nothing takes nothing from their quota; " +
	"tokens are settled to what was billed. The quick brown fox doesn't jump over 1,234 lazy dogs, but it's trying: " +
	"https://example.com/path?query=value&x=1.\n\nUnambiguously, characterisation of transcendental heterogeneity remains hard.\n"

const chinese = "人工智能服务的费用可能在几分钟之内迅速上升,因此每一次调用之前都必须先预留最坏情况下的费用。" +
	"如果供应商没有返回任何结果,用户的配额就不应该被扣除。\n这是一个简单的规则,但是许多系统都没有遵守它。"

func randomLetters(n int) string {
	random := xorshift(1)
	letters := make([]byte, n)
	for i := range letters {
		letters[i] = 'a' + byte(random.next(26))
	}
	return string(letters)
}

// BenchmarkFirstUse is what the first New of a name costs.
func BenchmarkFirstUse(b *testing.B) {
	for _, e := range []struct{ name, file, index string }{{o200kBase, o200kFile, o200kIndex}, {cl100kBase, cl100kFile, cl100kIndex}} {
		b.Run(e.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				newVocabulary(e.file, e.index)
			}
		})
	}
}

func BenchmarkCut(b *testing.B) {
	content := strings.Repeat(english, 300)
	for _, name := range Names() {
		tokenizer := must(b, name)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(tokenizer.Cut(content, 2000))))
			b.ReportAllocs()
			for b.Loop() {
				tokenizer.Cut(content, 2000)
			}
		})
	}
}
