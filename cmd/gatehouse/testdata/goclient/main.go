// Goclient calls a model with a vendor's Go client, configured by nothing but
// its environment.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/vertex"
	"google.golang.org/genai"
)

func main() {
	text, err := ask(context.Background(), os.Args[1])
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	fmt.Println(text)
}

func ask(ctx context.Context, how string) (string, error) {
	switch how {
	case "anthropic", "anthropic_stream", "anthropic_bearer", "anthropic_vertex", "anthropic_vertex_stream":
		client, model := anthropic.NewClient(), anthropic.Model("claude-sonnet-4-5")
		switch {
		case strings.HasSuffix(how, "_bearer"):
			client = anthropic.NewClient(option.WithAPIKey(""), option.WithAuthToken(os.Getenv("ANTHROPIC_API_KEY")))
		case strings.Contains(how, "_vertex"):
			model = "claude-opus-4-6"
			client = anthropic.NewClient(vertex.WithGoogleAuth(ctx, os.Getenv("CLOUD_ML_REGION"), os.Getenv("ANTHROPIC_VERTEX_PROJECT_ID")))
		}
		call := anthropic.MessageNewParams{
			Model: model, MaxTokens: 64,
			Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hi"))},
		}
		if !strings.HasSuffix(how, "_stream") {
			m, err := client.Messages.New(ctx, call)
			if err != nil {
				return "", err
			}
			return m.Content[0].Text, nil
		}
		s := client.Messages.NewStreaming(ctx, call)
		var m anthropic.Message
		for s.Next() {
			if err := m.Accumulate(s.Current()); err != nil {
				return "", err
			}
		}
		if err := s.Err(); err != nil {
			return "", err
		}
		return m.Content[0].Text, nil
	}
	config := &genai.ClientConfig{Backend: genai.BackendGeminiAPI}
	if strings.Contains(how, "vertex") {
		config = &genai.ClientConfig{Backend: genai.BackendVertexAI, Project: os.Getenv("GOOGLE_CLOUD_PROJECT"), Location: os.Getenv("GOOGLE_CLOUD_LOCATION")}
	}
	client, err := genai.NewClient(ctx, config)
	if err != nil {
		return "", err
	}
	if !strings.HasSuffix(how, "_stream") {
		r, err := client.Models.GenerateContent(ctx, "gemini-2.5-flash", genai.Text("hi"), nil)
		if err != nil {
			return "", err
		}
		return r.Text(), nil
	}
	text := ""
	for r, err := range client.Models.GenerateContentStream(ctx, "gemini-2.5-flash", genai.Text("hi"), nil) {
		if err != nil {
			return "", err
		}
		text += r.Text()
	}
	return text, nil
}
