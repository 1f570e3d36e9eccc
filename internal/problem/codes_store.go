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

// Codes of the notary.
const (
	KeysMissing     Code = "keys_missing"     // the key folder is not there, or lacks a key that the node needs
	SignerFailed    Code = "signer_failed"    // a key that is held elsewhere did not sign
	KeysInvalid     Code = "keys_invalid"     // a key file is malformed, open to others, or not in the keyset
	KeysExist       Code = "keys_exist"       // keys would have been overwritten
	LogInconsistent Code = "log_inconsistent" // the journal holds a log that this node cannot have written
	NotStarted      Code = "not_started"      // the notary has not folded the journal yet
	SessionUnknown  Code = "session_unknown"  // no such open session
	SessionExists   Code = "session_exists"   // the session has a chain already
	ChainClosed     Code = "chain_closed"     // session.close is written: nothing may follow
	ReceiptFlood    Code = "receipt_flood"    // the session is over its receipt budget and ends
)
