// Package journal is a node's write-ahead log: it reads and writes the segment
// files of one folder and makes records durable, many writers to one fdatasync.
// It must never acknowledge a record that is not on disk, never show a reader a
// record that is not, and never repair damage: only the tail that a crash tore
// is cut at start-up, anything else refuses to open.
//
// # Groups
//
// Writers append records; one goroutine takes what is queued (at most
// Options.MaxGroup records), lets the Seal hook add its record, writes the group
// in one piece and syncs it once. It waits for nobody while the disk is idle:
// groups grow because records arrive during the sync of the one before, and by
// records that nobody waits for, which Options.Linger lets share a sync. Where the
// file system writes in place, zeros are written over the allocated space ahead of
// them, which makes the sync cheaper (docs/adr/0008). A group is the unit of
// durability: after a crash it is there whole or not at all.
//
// # Failure
//
// A failed write or sync is sticky: every later Append and Wait returns
// problem.JournalFailed and readers stop at the last durable group. A full disk
// is noticed before anything is ordered: segments are allocated ahead, and when
// the next piece cannot be had Append refuses with problem.JournalFull while
// AppendReserved goes on in a reserve that was set aside at Open. When space
// returns the reserve is made again and Append accepts.
//
// # Files
//
//	lock      held exclusively while open
//	reserve   allocated space, given up when the disk is full
//	next      a segment being prepared; removed at Open
//	%016x.seg a segment, named by its first position
//
// A segment is a header and a row of frames, all little-endian, all multiples of
// eight bytes, checked with CRC-32C that starts from the journal's random id:
//
//	header  "GHJRNL01" id[16] first[8] link[4] reserved[4] crc[4] "GHSH"
//	frame   "GHFR" count[4] first[8] length[4] flags[4] bodycrc[4] link[4] crc[4] "GHFH"
//	        body[length] zeros size[4] "GHFE"
//	record  kind[1] zero[1] subject length[2] data length[4] subject data
//
// link is the header checksum of the frame before it, so that a segment put back
// from an old copy does not fit. The frame with the footer flag ends a full
// segment: it holds a sparse index and the newest snapshot of each subject.
//
// # What a torn tail is
//
// A group is written only after the group before it is durable. So a bad frame
// is a torn one only when nothing follows it, and when it shows what a lost page
// leaves behind: the file ends inside it, its last byte reads as zero, or a
// 512-byte sector of it does (sectors are taken to be written whole). A bad frame without
// that, such
// as one with a flipped bit, is damage even at the very end. Not to be told from
// a crash, and so cut: a tail that somebody cut off or zeroed by whole sectors.
// That is what checkpoints outside the node are for.
package journal
