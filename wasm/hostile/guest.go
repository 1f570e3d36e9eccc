package hostile

// Guest is a module of ABI v1 in the making: every function has a harmless
// body that a case replaces. The zero value denies everything with rule "r".
type Guest struct {
	Builder
	Pages     uint32 // of memory, 0 = 2
	Functions func(m *Builder)
	ABI       []byte
	Alloc     []byte // local 0 is the length
	Configure []byte // locals 0 and 1 are pointer and length
	Decide    []byte // locals 0 and 1 are pointer and length, 2 an i32
	Init      []byte // body of _initialize; nil leaves it out
	Starting  []byte // body of the start function; nil leaves it out
	Answer    string // data that Decide's default body returns
}

// Addresses that the default bodies use.
const (
	AnswerAt = 16
	InputAt  = 70_000
)

// Deny is the default answer.
const Deny = `{"reason":"no","rule":"r","verdict":"deny"}`

// Packed returns the code that packs a constant pointer and length.
func Packed(ptr, n int64) []byte { return I64Const(ptr<<32 | n) }

// Module assembles the guest.
func (g *Guest) Module() []byte {
	m := &g.Builder
	if g.Pages == 0 {
		g.Pages = 2
	}
	m.Memory(g.Pages)
	if g.Answer == "" {
		g.Answer = Deny
	}
	m.Data(AnswerAt, []byte(g.Answer))
	or := func(code, standard []byte) []byte {
		if code == nil {
			return standard
		}
		return code
	}
	if g.Functions != nil {
		g.Functions(m)
	}
	one, two := []byte{I32}, []byte{I32, I32}
	m.Export("gatehouse_abi_v1", m.Func(nil, one, nil, or(g.ABI, I32Const(0))))
	m.Export("gatehouse_alloc", m.Func(one, one, nil, or(g.Alloc, I32Const(InputAt))))
	m.Export("gatehouse_configure", m.Func(two, one, nil, or(g.Configure, I32Const(0))))
	m.Export("gatehouse_decide", m.Func(two, []byte{I64}, one, or(g.Decide, Packed(AnswerAt, int64(len(g.Answer))))))
	if g.Init != nil {
		m.Export("_initialize", m.Func(nil, nil, nil, g.Init))
	}
	if g.Starting != nil {
		m.Start(m.Func(nil, nil, nil, g.Starting))
	}
	return m.Bytes()
}
