package meter

// Prices, in fuel. The measurements behind them are in the reference; the aim
// is that no mix of instructions runs much longer per unit than another.
const (
	priceInstruction = 1
	priceDivide      = 8   // integer and float division, remainder, square root
	priceCall        = 4   // on top of what the callee pays
	priceImport      = 200 // a call leaves native code
	priceEntry       = 16  // a function entry, plus one per local
	priceBulk        = 16  // memory.fill and memory.copy, plus one per byte
	priceGrow        = 16  // memory.grow, plus priceGrowPage per page
	priceGrowPage    = 8192
)

// priceOf returns the price of a plain opcode.
func priceOf(op byte) int64 {
	switch {
	case op >= 0x6d && op <= 0x70, op >= 0x7f && op <= 0x82: // i32, i64 div and rem
		return priceDivide
	case op == 0x91, op == 0x95, op == 0x9f, op == 0xa3: // f32, f64 sqrt and div
		return priceDivide
	}
	return priceInstruction
}
