package holdfast

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// daemon listens where a client connects. The test reads each line and writes each answer itself.
type daemon struct {
	*testing.T
	listener net.Listener
}

func start(t *testing.T) (*daemon, *Client) {
	// The folder of T has the name of the test, which is too long for the path of a socket.
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	client := New(path)
	t.Cleanup(func() {
		client.Close()
		listener.Close()
		os.RemoveAll(folder)
	})
	return &daemon{t, listener}, client
}

// peer is the daemon's end of a connection.
type peer struct {
	*daemon
	socket net.Conn
	reader *bufio.Reader
}

// accept returns a connection, of which the greeting has been read and not answered.
func (d *daemon) accept() *peer {
	socket, err := d.listener.Accept()
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() { socket.Close() })
	peer := &peer{d, socket, bufio.NewReader(socket)}
	if method := peer.call().Method; method != "rpc.hello" {
		d.Fatal("begins with", method)
	}
	return peer
}

// greet returns a connection, of which the greeting has been answered.
func (d *daemon) greet() *peer {
	peer := d.accept()
	peer.write(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	return peer
}

func (p *peer) line() []byte {
	line, err := p.reader.ReadBytes('\n')
	if err != nil {
		p.Fatal(err)
	}
	return line
}

func (p *peer) call() (call incoming) {
	if err := json.Unmarshal(p.line(), &call); err != nil {
		p.Fatal(err)
	}
	return call
}

func (p *peer) write(line string) {
	if _, err := fmt.Fprintln(p.socket, line); err != nil {
		p.Fatal(err)
	}
}

func (p *peer) answer(id int64, result string) {
	p.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":%s}`, id, result))
}

func (p *peer) closed() {
	if line, err := p.reader.ReadBytes('\n'); err == nil {
		p.Fatalf("not closed: %s", line)
	}
}

func begin(run func() error) chan error {
	ended := make(chan error, 1)
	go func() { ended <- run() }()
	return ended
}

func isRefused(err error, code string) bool {
	var refused *Error
	return errors.As(err, &refused) && refused.Code == code
}

func TestALineThatIsRefusedWithoutItsIDEndsTheCalls(t *testing.T) {
	daemon, client := start(t)
	ended := begin(func() error { return client.Call(context.Background(), "session.list", nil, nil) })
	peer := daemon.greet()
	peer.call()
	peer.write(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no","data":{"code":"parse-error"}}}`)
	if err := <-ended; !isRefused(err, "parse-error") {
		t.Fatal("not refused:", err)
	}
	peer.closed()
}

func TestAMessageThatIsTooLongIsNotSentAndTheLongestOfAnyContentIs(t *testing.T) {
	daemon, client := start(t)
	ended := begin(func() error {
		_, err := client.Publish(context.Background(), Publication{Payload: make([]byte, 19<<20)})
		if !isRefused(err, "invalid-request") {
			return fmt.Errorf("not refused: %w", err)
		}
		for _, text := range []string{"\x00", "<", "é", "\xff"} {
			payload := bytes.Repeat([]byte(text), (16<<20)/len(text))
			if _, err := client.Publish(context.Background(), Publication{Payload: payload}); err != nil {
				return err
			}
		}
		return nil
	})
	peer := daemon.greet()
	for id := int64(4); id < 8; id++ {
		if line := peer.line(); len(line) > maximumLine {
			t.Error("too long:", len(line))
		}
		peer.answer(id, "{}")
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

func TestACallIsCancelledWhileTheDaemonDoesNotAnswerTheGreeting(t *testing.T) {
	daemon, client := start(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	call := func(ctx context.Context) func() error {
		return func() error { return client.Call(ctx, "session.list", nil, nil) }
	}
	first := begin(call(context.Background()))
	peer := daemon.accept()
	second := begin(call(ctx))
	cancel()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Fatal("not cancelled:", err)
	}
	client.Close()
	if err := <-first; !errors.Is(err, ErrNotRunning) {
		t.Fatal("goes on after Close:", err)
	}
	peer.closed()
}

func TestAConsumerIsCancelledWhileTheDaemonDoesNotAnswerTheGreeting(t *testing.T) {
	daemon, client := start(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := begin(func() error {
		return client.Consume(ctx, Subscription{Consumer: "c"}, func(context.Context, Message) error { return nil })
	})
	peer := daemon.accept()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal("not cancelled:", err)
	}
	peer.closed()
}

func TestWhatWasDroppedIsTold(t *testing.T) {
	daemon, client := start(t)
	var told []string
	ended := begin(func() error {
		subscription := Subscription{
			Consumer: "c", Dropped: func(count int) { told = append(told, fmt.Sprint(count, " dropped")) },
		}
		return client.Consume(context.Background(), subscription, func(_ context.Context, message Message) error {
			told = append(told, message.Topic)
			return nil
		})
	})
	peer := daemon.greet()
	peer.answer(peer.call().ID, `{"subscription":"s1","missed":7}`)
	peer.write(`{"jsonrpc":"2.0","method":"message.received","params":{"subscription":"s1","id":1,"topic":"a","payload":"x"}}`)
	peer.write(`{"jsonrpc":"2.0","method":"session.event","params":{"watch":"s1","event":"message-dropped","count":8}}`)
	peer.write(`{"jsonrpc":"2.0","method":"session.event","params":{"watch":"s1","event":"consumer-ended"}}`)
	if err := <-ended; err != ErrConsumerEnded {
		t.Fatal(err)
	}
	if got := fmt.Sprint(told); got != "[7 dropped a 8 dropped]" {
		t.Fatal("told", got)
	}
}

func TestAConsumerThatIsOvertakenBeforeItsAnswerHasEnded(t *testing.T) {
	daemon, client := start(t)
	ended := begin(func() error {
		return client.Consume(context.Background(), Subscription{Consumer: "c"}, func(context.Context, Message) error { return nil })
	})
	peer := daemon.greet()
	peer.write(fmt.Sprintf(
		`{"jsonrpc":"2.0","id":%d,"error":{"code":-32025,"message":"no","data":{"code":"unknown-subscription"}}}`, peer.call().ID))
	if err := <-ended; err != ErrConsumerEnded {
		t.Fatal(err)
	}
}

func TestAPublishThatWaitsForTheDeliveryIsRepeatedWhenTheDaemonStops(t *testing.T) {
	daemon, client := start(t)
	var published Published
	ended := begin(func() (err error) {
		published, err = client.Publish(context.Background(), Publication{UntilDelivered: true})
		return err
	})
	peer := daemon.greet()
	first := peer.call()
	peer.answer(first.ID, `{"id":7,"accepted":true,"delivered":false}`)
	again := peer.call()
	if string(again.Params) != string(first.Params) {
		t.Fatalf("not repeated: %s, %s", first.Params, again.Params)
	}
	peer.answer(again.ID, `{"id":7,"accepted":true,"delivered":true}`)
	if err := <-ended; err != nil || !published.Delivered {
		t.Fatal(published, err)
	}
}

func TestCloseEndsAPublishThatWaits(t *testing.T) {
	daemon, client := start(t)
	ended := begin(func() error {
		_, err := client.Publish(context.Background(), Publication{UntilDelivered: true})
		return err
	})
	peer := daemon.greet()
	peer.call()
	client.Close()
	if err := <-ended; !errors.Is(err, ErrNotRunning) {
		t.Fatal("not ended:", err)
	}
	peer.closed()
	if err := client.Call(context.Background(), "session.list", nil, nil); !errors.Is(err, ErrNotRunning) {
		t.Fatal("connects again:", err)
	}
}

func TestANotificationOfAnotherKindIsIgnored(t *testing.T) {
	daemon, client := start(t)
	over := errors.New("over")
	ended := begin(func() error {
		return client.Watch(context.Background(), "", func(_ context.Context, event Event) error {
			if event.Name == "snapshot" {
				return nil
			}
			return fmt.Errorf("%w: %s", over, event.Name)
		})
	})
	peer := daemon.greet()
	peer.answer(peer.call().ID, `{"watch":"w1","snapshot":{}}`)
	peer.write(`{"jsonrpc":"2.0","method":"daemon.news","params":{}}`)
	peer.write(`{"jsonrpc":"2.0","method":"session.event","params":{"watch":"w1","event":"path-changed"}}`)
	if err := <-ended; err == nil || err.Error() != "over: path-changed" {
		t.Fatal(err)
	}
}

// set changes a variable for the time of a test.
func set(t *testing.T, variable *time.Duration, value time.Duration) {
	before := *variable
	*variable = value
	t.Cleanup(func() { *variable = before })
}

const received = `{"jsonrpc":"2.0","method":"message.received","params":{"subscription":"s1","id":%d,"topic":"a","payload":"x"}}`

func TestWhatHandleReturnsIsReturnedAsItIs(t *testing.T) {
	inner := fmt.Errorf("the handler failed: %w", ErrNotRunning)
	type feed func(context.Context, *Client, error) error
	feeds := map[string]feed{
		"Subscribe": func(ctx context.Context, client *Client, own error) error {
			return client.Subscribe(ctx, Subscription{}, func(context.Context, Message) error { return own })
		},
		"Consume": func(ctx context.Context, client *Client, own error) error {
			return client.Consume(ctx, Subscription{Consumer: "c"}, func(context.Context, Message) error { return own })
		},
		"Watch": func(ctx context.Context, client *Client, own error) error {
			return client.Watch(ctx, "", func(context.Context, Event) error { return own })
		},
	}
	for name, run := range feeds {
		daemon, client := start(t)
		ended := begin(func() error { return run(context.Background(), client, inner) })
		peer := daemon.greet()
		peer.answer(peer.call().ID, `{"subscription":"s1","watch":"w1","snapshot":{}}`)
		if name != "Watch" {
			peer.write(fmt.Sprintf(received, 1))
		}
		// It would connect again.
		daemon.listener.Close()
		if err := <-ended; err != inner {
			t.Error(name, "returns", err)
		}
	}
}

func TestWhatHandleReturnsAfterTheContextHasEndedIsReturned(t *testing.T) {
	daemon, client := start(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	fire := errors.New("the motor is on fire")
	ended := begin(func() error {
		return client.Consume(ctx, Subscription{Consumer: "c"}, func(context.Context, Message) error {
			cancel()
			return fire
		})
	})
	peer := daemon.greet()
	peer.answer(peer.call().ID, `{"subscription":"s1"}`)
	peer.write(fmt.Sprintf(received, 1))
	if err := <-ended; err != fire {
		t.Fatal(err)
	}
}

func TestTheAcknowledgementsOfAConsumerThatEndsAreAwaited(t *testing.T) {
	set(t, &farewellTime, time.Hour)
	daemon, client := start(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var handled []int64
	ended := begin(func() error {
		return client.Consume(ctx, Subscription{Consumer: "c"}, func(_ context.Context, message Message) error {
			if handled = append(handled, message.ID); message.ID == 2 {
				cancel()
			}
			return nil
		})
	})
	peer := daemon.greet()
	peer.answer(peer.call().ID, `{"subscription":"s1"}`)
	for id := 1; id <= 3; id++ {
		peer.write(fmt.Sprintf(received, id))
	}
	first, second := peer.call(), peer.call()
	if first.Method != "message.ack" || second.Method != "message.ack" {
		t.Fatal(first, second)
	}
	// The sending side is closed, and the daemon still writes.
	peer.closed()
	for id := 4; id < 1000; id++ {
		peer.write(fmt.Sprintf(received, id))
	}
	peer.answer(first.ID, "{}")
	peer.answer(second.ID, "{}")
	select {
	case err := <-ended:
		t.Fatal("not awaited:", err)
	default:
	}
	peer.socket.Close()
	if err := <-ended; err != context.Canceled {
		t.Fatal(err)
	}
	if got := fmt.Sprint(handled); got != "[1 2]" {
		t.Fatal("handled", got)
	}
}

func TestAConsumerThatEndsDoesNotWaitLongForADaemonThatHangs(t *testing.T) {
	set(t, &farewellTime, time.Millisecond)
	daemon, client := start(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := begin(func() error {
		return client.Consume(ctx, Subscription{Consumer: "c"}, func(context.Context, Message) error { return nil })
	})
	peer := daemon.greet()
	peer.answer(peer.call().ID, `{"subscription":"s1"}`)
	peer.write(fmt.Sprintf(received, 1))
	peer.call()
	cancel()
	if err := <-ended; err != context.Canceled {
		t.Fatal(err)
	}
}

func TestATextThatIsNotUTF8IsRefusedAndNotChanged(t *testing.T) {
	daemon, client := start(t)
	// There is no daemon, so that nothing can be sent.
	daemon.listener.Close()
	bad := "caf\xe9"
	for _, publication := range []Publication{
		{Topic: bad}, {Session: bad}, {Key: bad}, {Properties: &Properties{ContentType: bad}},
		{Properties: &Properties{ResponseTopic: bad}}, {Properties: &Properties{User: []UserProperty{{"k", bad}}}},
		{Properties: &Properties{User: []UserProperty{{bad, "v"}}}},
	} {
		if _, err := client.Publish(context.Background(), publication); !isRefused(err, "invalid-parameters") {
			t.Errorf("%+v: %v", publication, err)
		}
	}
	for _, subscription := range []Subscription{{Filter: bad}, {Session: bad}, {Consumer: bad}} {
		if err := client.receive(context.Background(), subscription, nil); !isRefused(err, "invalid-parameters") {
			t.Errorf("%+v: %v", subscription, err)
		}
	}
}

func TestAnExpiryThatHasPassedIsNotOmitted(t *testing.T) {
	daemon, client := start(t)
	begin(func() error {
		_, err := client.Publish(context.Background(), Publication{Expiry: -time.Minute})
		return err
	})
	if params := string(daemon.greet().call().Params); !strings.Contains(params, `"expiry":-60,`) {
		t.Fatal(params)
	}
}

func TestADaemonThatWasNeverThereIsAnError(t *testing.T) {
	client := New("/nothing/here")
	ctx := context.Background()
	for name, run := range map[string]func() error{
		"Publish": func() error {
			_, err := client.Publish(ctx, Publication{})
			return err
		},
		"Consume":   func() error { return client.Consume(ctx, Subscription{Consumer: "c"}, nil) },
		"Subscribe": func() error { return client.Subscribe(ctx, Subscription{}, nil) },
		"Watch":     func() error { return client.Watch(ctx, "", nil) },
	} {
		err := run()
		if !errors.Is(err, ErrNotRunning) || err.Error() != "the daemon is not running: nothing listens on /nothing/here" {
			t.Error(name, "returns", err)
		}
	}
	long := New("/" + strings.Repeat("x", 200))
	if err := long.Watch(ctx, "", nil); !errors.Is(err, ErrNotRunning) || !strings.Contains(err.Error(), "invalid argument") {
		t.Error(err)
	}
}

func TestADaemonThatNeverAnswersIsAnError(t *testing.T) {
	set(t, &greetingTime, time.Millisecond)
	daemon, client := start(t)
	want := "the daemon does not answer on " + client.socket
	if _, err := client.Publish(context.Background(), Publication{}); !errors.Is(err, ErrNotRunning) || err.Error() != want {
		t.Error(err)
	}
	daemon.accept()
	if err := client.Watch(context.Background(), "", nil); !errors.Is(err, ErrNotRunning) || err.Error() != want {
		t.Error(err)
	}
}

func TestTheErrorOfTheContextHasTheReason(t *testing.T) {
	daemon, client := start(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	type result struct {
		published Published
		err       error
	}
	ended := make(chan result, 1)
	go func() {
		published, err := client.Publish(ctx, Publication{})
		ended <- result{published, err}
	}()
	peer := daemon.greet()
	call := peer.call()
	daemon.listener.Close()
	peer.socket.Close()
	// The client finds out that the daemon has gone.
	for client.Call(context.Background(), "session.list", nil, nil) == nil {
	}
	cancel()
	got := <-ended
	if !errors.Is(got.err, context.Canceled) || !strings.HasPrefix(got.err.Error(), "context canceled: the daemon ") {
		t.Fatal(got.err)
	}
	// With the key, the message can be published again.
	if got.published.Key == "" || !strings.Contains(string(call.Params), got.published.Key) {
		t.Fatal(got.published, string(call.Params))
	}
}

func TestARejectionHasTheCodeOfTheServerAndTheNumberOfTheMessage(t *testing.T) {
	daemon, client := start(t)
	ended := begin(func() error {
		_, err := client.Publish(context.Background(), Publication{UntilDelivered: true})
		return err
	})
	peer := daemon.greet()
	peer.write(fmt.Sprintf(
		`{"jsonrpc":"2.0","id":%d,"error":{"code":-32023,"message":"no","data":{"code":"message-rejected","reasonCode":135,"id":5}}}`,
		peer.call().ID))
	var refused *Error
	if err := <-ended; !errors.As(err, &refused) || refused.ReasonCode == nil || *refused.ReasonCode != 135 || refused.ID != 5 {
		t.Fatal(err)
	}
}

func TestARefusalThatComesOnceTheSessionIsConnectedIsAnError(t *testing.T) {
	daemon, client := start(t)
	handle := func(context.Context, Message) error { return nil }
	for _, receive := range []func() error{
		func() error {
			return client.Consume(context.Background(), Subscription{Filter: "b", Consumer: "c"}, handle)
		},
		func() error { return client.Subscribe(context.Background(), Subscription{Filter: "b"}, handle) },
	} {
		ended := begin(receive)
		peer := daemon.greet()
		peer.answer(peer.call().ID, `{"subscription":"s1","grantedQoS":null}`)
		for _, answer := range []string{
			`{"filter":"b","state":"granted","reasonCode":null,"message":null}`,
			`{"filter":"b","state":"refused","reasonCode":135,"message":"not authorized (0x87)"}`,
		} {
			peer.write(`{"jsonrpc":"2.0","method":"session.event","params":{"watch":"s1","event":"subscription-changed",` +
				`"subscription":` + answer + `}}`)
		}
		err := <-ended
		var refused *Error
		if !isRefused(err, "subscription-refused") || !errors.As(err, &refused) || *refused.ReasonCode != 135 {
			t.Fatal(err)
		}
		if text := err.Error(); text != `the server refused the subscription to "b": not authorized (0x87)` {
			t.Fatal(text)
		}
		peer.closed()
	}
}

func TestTheRemovalOfTheSessionIsAnError(t *testing.T) {
	daemon, client := start(t)
	handle := func(context.Context, Message) error { return nil }
	for _, receive := range []func() error{
		func() error {
			return client.Consume(context.Background(), Subscription{Session: "a", Filter: "b", Consumer: "c"}, handle)
		},
		func() error {
			return client.Subscribe(context.Background(), Subscription{Session: "a", Filter: "b"}, handle)
		},
	} {
		ended := begin(receive)
		peer := daemon.greet()
		peer.answer(peer.call().ID, `{"subscription":"s1"}`)
		peer.write(`{"jsonrpc":"2.0","method":"session.event","params":{"watch":"s1","event":"session-removed","session":"a"}}`)
		err := <-ended
		if !isRefused(err, "unknown-session") || err.Error() != "session a was removed from the configuration" {
			t.Fatal(err)
		}
		peer.closed()
	}
}
