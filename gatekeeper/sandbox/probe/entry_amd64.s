#include "textflag.h"

// func int80getpid() int
// getpid by the 32-bit entry, number 20.
TEXT ·int80getpid(SB), NOSPLIT, $0-8
	MOVL $20, AX
	INT  $0x80
	MOVLQSX AX, AX
	MOVQ AX, ret+0(FP)
	RET
