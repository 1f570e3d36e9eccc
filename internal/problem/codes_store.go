package problem

// Codes of the journal and the blob store.
const (
	JournalDamaged  Code = "journal_damaged"   // bytes that were durable are wrong or missing
	JournalFailed   Code = "journal_failed"    // a write failed; nothing is acknowledged any more
	JournalFull     Code = "journal_full"      // no disk space; only reserved appends pass
	JournalLocked   Code = "journal_locked"    // another process has it open
	JournalClosed   Code = "journal_closed"    // closed by its owner
	JournalTrimmed  Code = "journal_trimmed"   // the asked position was trimmed away
	JournalLimit    Code = "journal_limit"     // a record or call over the journal's limits
	JournalKey      Code = "journal_key"       // the node key is missing, or not the one that sealed a private record
	BlobDamaged     Code = "blob_damaged"      // stored bytes do not have the digest they are named by
	BlobTooLarge    Code = "blob_too_large"    // over the store's limit
	BlobNameInvalid Code = "blob_name_invalid" // not a lower hex SHA-256
)
