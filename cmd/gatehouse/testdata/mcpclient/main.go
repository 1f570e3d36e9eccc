// Command mcpclient calls tools of the session's MCP endpoint through the
// official Go client, for tests that run it inside a sandbox. Each argument is
// "name tool arguments"; each answer is one line, "name: ok|failed text".
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Println("mcpclient:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, calls []string) error {
	client := mcp.NewClient(&mcp.Implementation{Name: "mcpclient", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: os.Getenv("GATEHOUSE_MCP_URL")}, nil)
	if err != nil {
		return err
	}
	defer session.Close()
	for _, c := range calls {
		name, rest, _ := strings.Cut(c, " ")
		tool, args, _ := strings.Cut(rest, " ")
		res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(args)})
		if err != nil {
			fmt.Printf("%s: error %v\n", name, err)
			continue
		}
		said := "ok"
		if res.IsError {
			said = "failed"
		}
		text, _ := res.Content[0].(*mcp.TextContent)
		fmt.Printf("%s: %s %s\n", name, said, text.Text)
	}
	return nil
}
