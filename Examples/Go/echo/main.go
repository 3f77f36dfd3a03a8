// Command echo answers every message of a topic, and loses none, whichever program is restarted: echo SESSION
//
// It takes SESSION's orders/# as the durable consumer "echo", and publishes each payload, with its properties, to replies/…
// An order whose answer cannot be published, for example because its topic would be too long, is reported and left.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"holdfast"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: echo SESSION")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := echo(ctx, os.Args[1]); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "echo:", err)
		os.Exit(1)
	}
}

// unpublishable are the refusals that are due to the message itself. It would be refused each time.
var unpublishable = map[string]bool{
	"invalid-topic": true, "invalid-parameters": true, "invalid-request": true, "message-rejected": true,
}

func echo(ctx context.Context, session string) error {
	client := holdfast.New("")
	client.Name = "echo.go"
	defer client.Close()
	var status struct{ State string }
	if err := client.Call(ctx, "session.status", map[string]any{"session": session}, &status); err != nil {
		return err
	}
	fmt.Println(session, "is", status.State)
	return client.Consume(
		ctx, holdfast.Subscription{Session: session, Filter: "orders/#", Consumer: "echo"},
		func(ctx context.Context, order holdfast.Message) error {
			// The filter also matches the topic "orders", and an answer there would be an order.
			if !strings.HasPrefix(order.Topic, "orders/") {
				return nil
			}
			answer, err := client.Publish(ctx, holdfast.Publication{
				Session: session, Topic: strings.Replace(order.Topic, "orders/", "replies/", 1), Payload: order.Payload,
				Properties: order.Properties,
			})
			var refused *holdfast.Error
			if errors.As(err, &refused) && unpublishable[refused.Code] {
				fmt.Fprintf(os.Stderr, "echo: %.100q is not answered: %v\n", order.Topic, err)
				return nil
			}
			if err != nil {
				return err
			}
			fmt.Printf("%s %s is answered as message %d\n", order.Topic, order.Payload, answer.ID)
			return nil
		})
}
