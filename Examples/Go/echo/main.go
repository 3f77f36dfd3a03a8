// Command echo answers every message of a topic, and loses none, whichever program is restarted: echo SESSION
//
// It takes SESSION's orders/# as the durable consumer "echo", and publishes each payload, with its properties, to replies/…
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
			answer, err := client.Publish(ctx, holdfast.Publication{
				Session: session, Topic: strings.Replace(order.Topic, "orders/", "replies/", 1), Payload: order.Payload,
				Properties: order.Properties,
			})
			if err != nil {
				return err
			}
			fmt.Printf("%s %s is answered as message %d\n", order.Topic, order.Payload, answer.ID)
			return nil
		})
}
