package door

import (
	"context"
	"testing"
	"time"

	"gatehouse/internal/secret"
)

// TestDoorURLsAfterTheEnd: EG-108. An answer that is late puts nothing into a
// table that has been emptied.
func TestDoorURLsAfterTheEnd(t *testing.T) {
	now := time.Now()
	one := func() doorURL {
		return doorURL{query: secret.FromString("sig=0123456789"), until: now.Add(time.Minute)}
	}
	life, cut := context.WithCancel(t.Context())
	var us doorURLs
	if _, ok := us.add(life, now, one()); !ok {
		t.Fatal("not taken")
	}
	cut()
	if _, ok := us.add(life, now, one()); ok {
		t.Error("one was taken after the end")
	}
	next, cut := context.WithCancel(t.Context())
	defer cut()
	handle, ok := us.add(next, now, one())
	if _, got := us.get(handle, 0, now); !ok || !got {
		t.Error("the next policy's was not taken")
	}
	if _, ok := us.add(life, now, one()); ok {
		t.Error("one of the policy before was taken")
	}
	if len(us.by) != 1 || len(us.order) != 1 {
		t.Errorf("%d are kept", len(us.by))
	}
}
