package receipts_test

import (
	"fmt"
	"os"

	"gatehouse/receipts"
)

// An auditor has a file and a fingerprint from elsewhere.
func ExampleVerify() {
	f, err := os.Open("testdata/vectors/exports/closed_session.export")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	res := receipts.Verify(f, receipts.Options{
		Root: "d5342cb57bd62f6ec24002167e24aaf9a7d3157fc78379524405a8ae6f7f3915",
		Visit: func(index uint64, _ receipts.Hash, r *receipts.Receipt) {
			if r.Dec != nil && r.Dec.Verdict != receipts.Allow {
				fmt.Printf("%d: %s %s: %s by %s, passed %t\n", index, r.Act.Kind, r.Act.Host, r.Dec.Verdict, r.Dec.Rule, r.Dec.Passed)
			}
		},
	})
	fmt.Println(res.Exit, res.Class)
	for _, s := range res.Sessions {
		fmt.Println(s.Bundle, s.Mode, s.State, s.Reason, s.Verdicts)
	}
	// Output:
	// 7: http.request packages.example.com: deny by egress.default_deny, passed false
	// 8: http.request packages.example.com: deny by egress.default_deny, passed true
	// 0 complete
	// fix-failing-ci shadow closed completed map[allow:1 deny:1 would_block:1]
}

// A reader of a live stream checks each message as it comes.
func ExampleMessage_Open() {
	note, err := os.ReadFile("testdata/vectors/notes/keyset.note")
	if err != nil {
		fmt.Println(err)
		return
	}
	ks, err := receipts.ParseKeyset(note, "d5342cb57bd62f6ec24002167e24aaf9a7d3157fc78379524405a8ae6f7f3915")
	if err != nil {
		fmt.Println(err)
		return
	}
	forged := receipts.Message{Data: []byte(`{"v":1}`), Type: "decision", Seal: "none"}
	_, _, err = forged.Open(ks)
	fmt.Println(ks.Origin, err)
	// Output: gatehouse.example/node-1 seal header: ten words expected
}
