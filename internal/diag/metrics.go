package diag

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Metrics are the node's own, listed in docs/metrics.md. A label has few
// values for ever: never a session, repository, host, user or URL.
type Metrics struct {
	registry *prometheus.Registry

	IngestRequests *prometheus.CounterVec   // source, outcome
	IngestBytes    *prometheus.HistogramVec // source; accepted bodies
	Admissions     *prometheus.CounterVec   // bundle, decision, reason
	SessionsActive *prometheus.GaugeVec     // provider
	SessionSeconds *prometheus.HistogramVec // reason
	Verdicts       *prometheus.CounterVec   // enforcer, mode, verdict, reason; a would-block is a deny in shadow
	VerdictSeconds *prometheus.HistogramVec // enforcer
	Faults         *prometheus.CounterVec   // enforcer, code
	Receipts       *prometheus.CounterVec   // type
	VerifyFailures prometheus.Counter
	Deliveries     *prometheus.CounterVec   // kind, mode
	ModelCalls     *prometheus.CounterVec   // connection, code; "" is an answered call
	ModelSeconds   *prometheus.HistogramVec // connection; to the head of the answer
	ModelSpent     *prometheus.CounterVec   // connection; nanodollars
	Telemetry      *prometheus.CounterVec   // connection, code; "" is a delivered report
	Own            *prometheus.CounterVec   // what: traces | errors, code; "" is a delivered report of the node itself
}

// NewMetrics returns a fresh registry with the Go and process collectors and
// gatehouse_build_info.
func NewMetrics(version string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	m.IngestRequests = m.counters("ingest_requests_total", "Webhook requests by source and outcome.", "source", "outcome")
	m.IngestBytes = m.histograms("ingest_payload_bytes", "Size of accepted webhook bodies in bytes.", prometheus.ExponentialBuckets(256, 4, 9), "source")
	m.Admissions = m.counters("admissions_total", "Admission decisions by bundle, decision and reason code.", "bundle", "decision", "reason")
	m.SessionsActive = m.gauges("sessions_active", "Sessions that run now.", "provider")
	m.SessionSeconds = m.histograms("session_duration_seconds", "Time from admission to end, by end reason.", prometheus.ExponentialBuckets(1, 3, 10), "reason")
	m.Verdicts = m.counters("verdicts_total", "Verdicts by enforcer, mode, verdict and reason code.", "enforcer", "mode", "verdict", "reason")
	m.VerdictSeconds = m.histograms("verdict_duration_seconds", "Time one enforcer took for a verdict.", prometheus.ExponentialBuckets(1e-6, 4, 10), "enforcer")
	m.Faults = m.counters("enforcer_faults_total", "Enforcer faults by code; each is a deny in hard mode.", "enforcer", "code")
	m.Receipts = m.counters("receipts_appended_total", "Durable receipts by type.", "type")
	m.VerifyFailures = m.counters("receipt_verify_failures_total", "Receipts of this node that did not verify.").WithLabelValues()
	m.Deliveries = m.counters("credential_deliveries_total", "Credentials of sessions that opened, by the connection's kind and delivery mode.", "kind", "mode")
	m.ModelCalls = m.counters("model_calls_total", "Model calls by connection and reason code; answered ones have none.", "connection", "code")
	m.ModelSeconds = m.histograms("model_first_byte_seconds", "Time from a model call's head to the head of its answer.", prometheus.ExponentialBuckets(0.005, 4, 8), "connection")
	m.ModelSpent = m.counters("model_spent_nanodollars_total", "What model calls cost, in nanodollars.", "connection")
	m.Telemetry = m.counters("telemetry_reports_total", "Reports of sessions to telemetry connections by connection and reason code; delivered ones have none.", "connection", "code")
	m.Own = m.counters("own_reports_total", "Reports of the node itself, traces and errors, by reason code; delivered ones have none.", "what", "code")
	build := m.gauges("build_info", "Always 1; the version is the label.", "version")
	build.WithLabelValues(version).Set(1)
	return m
}

const namespace = "gatehouse"

// Gauge registers gatehouse_<name>, whose value f returns at each scrape. It
// panics when the name is taken, as a wiring mistake.
func (m *Metrics) Gauge(name, help string, f func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, f))
}

func (m *Metrics) counters(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
	m.registry.MustRegister(v)
	return v
}
