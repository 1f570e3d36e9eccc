// Gatehouse-verify checks an export of receipts offline. It reads the export
// and, if given, a checkpoint file; it writes a report to standard output and
// its verdict as the exit status. It must never reach the network, run a
// program, write a file, or need anything but the standard library and package
// receipts: it is the part of Gatehouse that an auditor builds and reads.
//
//	gatehouse-verify FILE --root FINGERPRINT [--session ID]
//	    [--checkpoint FILE] [--max-age DURATION]
//	    [--since TIME] [--until TIME] [-o text|json]
//
// Exit status: 0 complete, 1 tampered or forked, 2 usage or unreadable input,
// 3 valid prefix with its end unproven, 4 a key is not trusted, 5 complete with
// admitted losses or open outcomes, 6 unsupported. docs/receipts-spec.md
// defines them.
package main
