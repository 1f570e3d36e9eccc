package meter

// Prices, in fuel. They follow what native code takes, coarsely, so that no mix
// of instructions runs much longer per unit than another; TestPriceOfTime
// measures the spread.
const (
	priceLoad   = 4 // a dependent load that misses the cache is the slowest thing per unit
	priceStore  = 2 //
	priceDivide = 4 // integer and float division, remainder, square root

	priceCall     = 8   // on top of what the callee pays
	priceImport   = 200 // a call leaves native code
	priceEntry    = 16  // a function entry, plus one per local
	priceLoop     = 1   // a loop header
	priceBulk     = 16  // memory.fill and memory.copy, plus one per byte
	priceGrow     = 16  // memory.grow, plus priceGrowPage per page
	priceGrowPage = 8192
)

// wholeBelow is the largest cost of a function or loop body that is paid at
// once at its head, whatever a pass through it skips. Above it each run of
// instructions pays for itself: compilers that turn a whole function into one
// loop around a jump table, like Go's, would otherwise pay for all of it at
// every jump.
const wholeBelow = 128

// price returns the price of an instruction, calls included. Instructions that
// only shape the code or name a value cost nothing: they become no machine
// code, and the instruction that uses the value pays.
func (c *code) price(i instruction) int64 {
	switch op := i.op; {
	case op == opCall && int(i.index) < c.m.imported:
		return priceImport
	case op == opCall, op == opCallIndirect:
		return priceCall
	case op == opBlock, op == opLoop, op == opElse, op == opEnd, op == opNop, op == opDrop, op == opLocalGet:
		return 0
	case op >= opI32Const && op <= opF64Const:
		return 0
	case op >= 0x28 && op <= 0x35:
		return priceLoad
	case op >= 0x36 && op <= 0x3e:
		return priceStore
	case op >= 0x6d && op <= 0x70, op >= 0x7f && op <= 0x82: // i32, i64 div and rem
		return priceDivide
	case op == 0x91, op == 0x95, op == 0x9f, op == 0xa3: // f32, f64 sqrt and div
		return priceDivide
	}
	return 1
}
