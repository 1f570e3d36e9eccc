// Command otelclient reports one span, one metric and one log line through the
// OTel Go SDK as it comes, for tests that run it inside a sandbox.
package main

import (
	"context"
	"fmt"
	"os"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
)

func main() {
	if err := report(context.Background()); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("reported")
}

func report(ctx context.Context) error {
	spans, err := otlptracehttp.New(ctx)
	if err != nil {
		return err
	}
	tp := trace.NewTracerProvider(trace.WithBatcher(spans))
	_, span := tp.Tracer("test").Start(ctx, "go-span")
	span.SetAttributes(attribute.String("session.id", "s-forged"))
	span.End()
	if err := tp.Shutdown(ctx); err != nil {
		return err
	}
	metrics, err := otlpmetrichttp.New(ctx)
	if err != nil {
		return err
	}
	mp := metric.NewMeterProvider(metric.WithReader(metric.NewPeriodicReader(metrics)))
	counter, err := mp.Meter("test").Int64Counter("go-counter")
	if err != nil {
		return err
	}
	counter.Add(ctx, 1)
	return mp.Shutdown(ctx)
}
