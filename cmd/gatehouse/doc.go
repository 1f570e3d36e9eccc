// Gatehouse lets events start unattended coding-agent sessions without handing
// those sessions your keys.
//
// This package reads the command line and wires the rooms: serve.go joins them,
// each after those that it needs, and each verb has a file of its own. What is
// admitted, judged or spent is decided in the rooms and never here. Local verbs
// (receipts verify, bundle lint, config) call the packages; verbs about a running
// node call its API over the 0600 unix socket in the state folder.
//
// # Where to look
//
// The files by what they are for (TestDocNamesEveryFile):
//
//	the command line    main cli args wrong_line table remote umask
//	the node, in order  serve wiring processors sources access backlog streams
//	                    adapters changes review people pages inventory private
//	                    private_hosts status
//	a session's door    doors generation upstreams inject added modules mediate
//	                    mediate_agent mediate_git mediate_lfs mediate_model
//	                    mediate_operations mediate_services mediate_telemetry
//	                    models_token inbox actions
//	providers           provider_oci provider_remote images conformance
//	                    conformance_placeholder
//	the node's own work node_calls git_reconcile reconcile retain retain_blobs
//	                    audit_copy checkpoint_push counting traces problems
//	                    notify notify_mail
//	verbs: start        init connect connect_app connect_vendors doctor
//	                    doctor_app doctor_machine doctor_node demo config
//	verbs: events       endpoint event event_send sign
//	verbs: bundles      bundle bundle_change bundle_remote bundle_start shadow
//	                    set enforcer
//	verbs: sessions     run run_replay session spend model prices prices_sign
//	                    image_pull
//	verbs: receipts     receipts receipts_page receipts_proof receipts_remote
//	                    receipts_tamper receipts_watch replay auditor key
//	verbs: upkeep       backup restore rebuild drain secret token
package main
