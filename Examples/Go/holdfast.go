// Package holdfast is a client of holdfastd, in one file, with nothing but Go's standard library.
//
//	client := holdfast.New("")
//	defer client.Close()
//	_, err := client.Publish(ctx, holdfast.Publication{Session: "main", Topic: "plant/7/temperature", Payload: []byte("21.5")})
//	err = client.Consume(ctx, holdfast.Subscription{Session: "main", Filter: "plant/7/orders/#", Consumer: "billing"},
//		func(ctx context.Context, message holdfast.Message) error {
//			fmt.Println(message.Topic, string(message.Payload))
//			return nil
//		})
//
// Calls are JSON-RPC 2.0 on the daemon's Unix socket; holdfast-rpc(7) has every method, and Call takes any of them. A message
// that Publish has returned for is on disk. Publish, Consume, Subscribe and Watch continue when the daemon is restarted.
package holdfast

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/user"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"
)

// DefaultSocket is where the daemon listens, unless $HOLDFAST_SOCKET says otherwise.
const DefaultSocket = "/run/holdfast/control.sock"

const protocolVersion = 1

// The daemon refuses a longer line, without saying whose it was: see LIMITS in holdfast-rpc(7).
const maximumLine = 24 << 20

// A text of more bytes is sent as base64, whose length does not depend on what is in it.
const longText = 64 << 10

// How long the daemon may take to answer the first line of a connection.
var greetingTime = 10 * time.Second

// How long a feed that is left waits for its acknowledgements to be committed.
var farewellTime = time.Second

// ErrNotRunning says that the daemon cannot be reached, that it is stopping, or that it went away before it answered; or that
// the client was closed. Find it with errors.Is: the error's text has the reason. It is not known whether an unanswered call
// was carried out.
var ErrNotRunning = errors.New("the daemon is not running")

// unanswered is an ErrNotRunning with its reason.
type unanswered string

func (e unanswered) Error() string { return string(e) }

func (unanswered) Is(target error) bool { return target == ErrNotRunning }

// absent is an ErrNotRunning that is no cause to wait for the daemon if it was never there.
type absent struct{ unanswered }

// ErrConsumerEnded says that another program has taken the durable consumer over, or that it was ended.
var ErrConsumerEnded = errors.New("another program has the durable consumer now, or it was ended")

// Error is a call that the daemon refused.
type Error struct {
	// Message says what is wrong, in one sentence.
	Message string
	// Code is stable: see ERROR CODES in holdfast-rpc(7).
	Code string
	// Hint says what to do about it; it may be empty.
	Hint string
	// ReasonCode is the code with which the server rejected a message, and nil in other errors.
	ReasonCode *int
	// ID is the number of a message that had been accepted before it was rejected or dropped. It is 0 if the call has changed
	// nothing.
	ID int64
}

func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + "; " + e.Hint
}

// Message is a message that a session received.
type Message struct {
	Session string
	Topic   string
	Payload []byte
	QoS     int
	Retain  bool
	// Duplicate says that a program may have received it before.
	Duplicate bool
	// ID identifies the message when a durable consumer acknowledges it.
	ID int64
	// Properties is nil if the message has none.
	Properties *Properties
}

// Properties are what MQTT 5 lets a message say about itself (3.3.2.3).
type Properties struct {
	// ContentType is the MIME type of the payload.
	ContentType string `json:"contentType,omitempty"`
	// ResponseTopic is the topic on which an answer is expected.
	ResponseTopic string `json:"responseTopic,omitempty"`
	// CorrelationData is what the answer repeats.
	CorrelationData []byte `json:"correlationDataBase64,omitempty"`
	// User has names and values whose meaning the application defines; names may repeat.
	User []UserProperty `json:"user,omitempty"`
}

// UserProperty is a name and a value.
type UserProperty struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Publication is a message to publish.
type Publication struct {
	Session string
	Topic   string
	Payload []byte
	// QoS is 1 unless it is given: 0, 1 or 2.
	QoS    *int
	Retain bool
	// Expiry is how long the message is worth delivering; 0 means forever. The daemon refuses one that is negative, such as
	// time.Until of a moment that has passed.
	Expiry     time.Duration
	Properties *Properties
	// UntilDelivered waits until the server has acknowledged it, instead of until it is on disk. A session that is removed
	// before that is an *Error.
	UntilDelivered bool
	// Key prevents duplicates: calls with the same key while the message is in the outbox, or within 24 hours after that, are
	// the same message. By default each call is a new one, with a key of its own.
	Key string
}

// Published is what became of a publication.
type Published struct {
	ID        int64 `json:"id"`
	Accepted  bool  `json:"accepted"`
	Delivered bool  `json:"delivered"`
	// ReasonCode is the code in the server's acknowledgement. A message that the server rejects is an *Error.
	ReasonCode *int `json:"reasonCode"`
	// Key is the key of the publication. It is set even if Publish returns an error.
	Key string `json:"-"`
}

// Subscription is what to receive.
type Subscription struct {
	Session string
	Filter  string
	// QoS is 1 unless it is given: 0, 1 or 2.
	QoS *int
	// Consumer names a durable consumer: for Consume only.
	Consumer string
	// Dropped, if it is set, is called between messages with how many were dropped before the next one: by Consume because the
	// durable consumer was full, by Subscribe because too much was unread.
	Dropped func(count int)
}

// Event is a snapshot or an event of Watch, with its name and all its members.
type Event struct {
	// Name is "snapshot", or one of EVENTS in holdfast-rpc(7).
	Name string
	// Session is empty in a snapshot.
	Session string
	// Members is the whole JSON object.
	Members json.RawMessage
}

// Client calls the daemon. It may be used by several goroutines at once.
type Client struct {
	socket string
	// Name is the name of this program in the daemon's log; set it before the first call.
	Name string

	lock    sync.Mutex
	current *connection
	closed  bool
	// answered says whether the daemon has ever answered a greeting.
	answered atomic.Bool
}

// New makes a client. An empty socket means $HOLDFAST_SOCKET or DefaultSocket. It connects at the first call.
func New(socket string) *Client {
	if socket == "" {
		socket = os.Getenv("HOLDFAST_SOCKET")
	}
	if socket == "" {
		socket = DefaultSocket
	}
	return &Client{socket: socket, Name: "holdfast.go"}
}

// Close ends the connection of the calls for good: calls fail, and Publish is not repeated. Consume, Subscribe and Watch end
// with their contexts.
func (c *Client) Close() {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.closed = true
	if c.current != nil {
		c.current.end(errClosed)
	}
}

// Call calls a method of holdfast-rpc(7). Params is any value that becomes a JSON object, whose texts are UTF-8: encoding/json
// replaces what is not. Result is a pointer to the value that the answer is decoded into, or nil. The error is an *Error if the
// daemon refuses, and ErrNotRunning if it does not answer. A call of more than 24 MiB is an *Error with the code
// "invalid-request", and is not sent. When the context ends, the call may still be carried out.
func (c *Client) Call(ctx context.Context, method string, params any, result any) error {
	connection, err := c.connection(ctx)
	if err != nil {
		return err
	}
	return connection.call(ctx, method, params, result)
}

// Publish publishes a message once. If the daemon is restarted before it answers, the call is repeated. If the daemon was
// never there, that is an error. After any error but an *Error, the message may have been accepted: to publish it again without
// doubling it, use the Key of the result.
func (c *Client) Publish(ctx context.Context, publication Publication) (Published, error) {
	texts := []string{publication.Session, publication.Topic, publication.Key}
	if properties := publication.Properties; properties != nil {
		texts = append(texts, properties.ContentType, properties.ResponseTopic)
		for _, property := range properties.User {
			texts = append(texts, property.Name, property.Value)
		}
	}
	if err := valid(texts...); err != nil {
		return Published{Key: publication.Key}, err
	}
	if publication.Key == "" {
		key := make([]byte, 16)
		if _, err := rand.Read(key); err != nil {
			return Published{}, err
		}
		publication.Key = hex.EncodeToString(key)
	}
	params := map[string]any{
		"session": publication.Session, "topic": publication.Topic, "retain": publication.Retain,
		"key": publication.Key,
	}
	if len(publication.Payload) <= longText && utf8.Valid(publication.Payload) {
		params["payload"] = string(publication.Payload)
	} else {
		params["payloadBase64"] = base64.StdEncoding.EncodeToString(publication.Payload)
	}
	if publication.QoS != nil {
		params["qos"] = *publication.QoS
	}
	if publication.Expiry != 0 {
		params["expiry"] = publication.Expiry.Seconds()
	}
	if publication.Properties != nil {
		params["properties"] = publication.Properties
	}
	if publication.UntilDelivered {
		params["wait"] = "delivered"
	}
	published := Published{Key: publication.Key}
	err := c.again(ctx, func() error {
		err := c.Call(ctx, "message.publish", params, &published)
		if err == nil && publication.UntilDelivered && !published.Delivered {
			// The daemon is stopping, or as many calls of this client wait for deliveries as may.
			return errUndelivered
		}
		return err
	})
	return published, err
}

// Consume passes every message of a durable consumer to handle, one after the other, from where the consumer left off. A
// message is acknowledged when handle returns nil; if handle returns an error or the program is killed, it comes again.
// Consume returns the error of handle, of the context, of a refusal, or of a daemon that was never there; before that, it waits
// up to a second for what handle has taken to be acknowledged. If there is no subscription to the filter, that is an *Error with the
// code "subscription-refused": at once, or if the session is away, when it is connected; and after the messages that were
// collected before. If the session is removed from the configuration, that is an *Error with the code "unknown-session".
func (c *Client) Consume(
	ctx context.Context, subscription Subscription, handle func(context.Context, Message) error,
) error {
	if subscription.Consumer == "" {
		return errors.New("a durable consumer has a name")
	}
	return c.receive(ctx, subscription, handle)
}

// Subscribe passes messages that arrive from now on to handle, and returns as Consume does. Messages that are sent while the
// daemon is not running are missed.
func (c *Client) Subscribe(
	ctx context.Context, subscription Subscription, handle func(context.Context, Message) error,
) error {
	subscription.Consumer = ""
	return c.receive(ctx, subscription, handle)
}

// Watch passes a snapshot and then every event to handle, and another snapshot after each restart of the daemon. An empty
// session means all sessions.
func (c *Client) Watch(ctx context.Context, session string, handle func(context.Context, Event) error) error {
	params := map[string]any{}
	if session != "" {
		params["session"] = session
	}
	return c.feed(ctx, "session.watch", params, func(_ *connection, line incoming) error {
		if line.Method == "" {
			var answer struct {
				Snapshot json.RawMessage `json:"snapshot"`
			}
			if err := json.Unmarshal(line.Result, &answer); err != nil {
				return err
			}
			return handled(handle(ctx, Event{Name: "snapshot", Members: answer.Snapshot}))
		}
		if line.Method != "session.event" {
			return nil
		}
		var event struct {
			Event   string `json:"event"`
			Session string `json:"session"`
		}
		if err := json.Unmarshal(line.Params, &event); err != nil {
			return err
		}
		return handled(handle(ctx, Event{Name: event.Event, Session: event.Session, Members: line.Params}))
	})
}

func (c *Client) receive(
	ctx context.Context, subscription Subscription, handle func(context.Context, Message) error,
) error {
	if err := valid(subscription.Session, subscription.Filter, subscription.Consumer); err != nil {
		return err
	}
	params := map[string]any{"session": subscription.Session, "filter": subscription.Filter}
	if subscription.QoS != nil {
		params["qos"] = *subscription.QoS
	}
	if subscription.Consumer != "" {
		params["consumer"] = subscription.Consumer
	}
	return c.feed(ctx, "message.subscribe", params, func(connection *connection, line incoming) error {
		dropped := func(count int) {
			if count > 0 && subscription.Dropped != nil {
				subscription.Dropped(count)
			}
		}
		switch line.Method {
		case "":
			var answer struct {
				Missed int `json:"missed"`
			}
			if err := json.Unmarshal(line.Result, &answer); err != nil {
				return err
			}
			dropped(answer.Missed)
		case "message.received":
			message, id, err := line.message()
			if err != nil {
				return err
			}
			if err := handle(ctx, message); err != nil || subscription.Consumer == "" {
				return handled(err)
			}
			if ctx.Err() != nil {
				// The context may have ended long ago.
				connection.socket.SetWriteDeadline(time.Now().Add(farewellTime))
			}
			// The answer comes among the messages; if it is a refusal, it ends the feed.
			return connection.send("message.ack", map[string]any{"subscription": id, "id": message.ID}, 0)
		case "session.event":
			var event struct {
				Event string `json:"event"`
				Count int    `json:"count"`
				// The answer of the server, of which it could not be asked when the subscription began.
				Subscription struct {
					State      string `json:"state"`
					ReasonCode *int   `json:"reasonCode"`
					Message    string `json:"message"`
				} `json:"subscription"`
			}
			if err := json.Unmarshal(line.Params, &event); err != nil {
				return err
			}
			switch event.Event {
			case "subscription-changed":
				if answer := event.Subscription; answer.State == "refused" {
					what := "the server refused the subscription to"
					if answer.ReasonCode == nil {
						what = "there is no subscription to"
					}
					return &Error{
						Message: fmt.Sprintf("%s %q: %s", what, subscription.Filter, answer.Message),
						Code:    "subscription-refused", ReasonCode: answer.ReasonCode,
					}
				}
			case "consumer-ended":
				return ErrConsumerEnded
			case "session-removed":
				return &Error{
					Message: fmt.Sprintf("session %s was removed from the configuration", subscription.Session),
					Code:    "unknown-session",
				}
			case "message-dropped":
				dropped(event.Count)
			}
		}
		return nil
	})
}

// feed runs a method whose answer is followed by notifications, on a connection of its own, so that a program that handles
// them slowly still gets the answers to its calls. It continues when the daemon is restarted.
func (c *Client) feed(
	ctx context.Context, method string, params any, take func(*connection, incoming) error,
) error {
	return c.again(ctx, func() error {
		connection, err := c.dial()
		if err != nil {
			return err
		}
		// Reading does not take a context.
		over, watched := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(watched)
			select {
			case <-ctx.Done():
				connection.socket.SetReadDeadline(time.Now())
				connection.socket.SetWriteDeadline(time.Now().Add(farewellTime))
			case <-over:
			}
		}()
		defer func() {
			close(over)
			<-watched
			connection.leave()
		}()
		if err := connection.greet(); err != nil {
			if ctx.Err() != nil {
				return c.withoutAnswer(ctx)
			}
			return err
		}
		const number = 2
		if err := connection.send(method, params, number); err != nil {
			return err
		}
		for {
			line, err := connection.accepted()
			if ctx.Err() != nil {
				return ctx.Err()
			}
			var refused *Error
			if errors.As(err, &refused) && refused.Code == "unknown-subscription" {
				// Another program attached before this one, or its message, was answered.
				return ErrConsumerEnded
			}
			if err != nil {
				return err
			}
			if line.Method != "" || line.ID == number {
				if err := take(connection, line); err != nil {
					return err
				}
			}
		}
	})
}

// handlerError is an error of the program's own, which may look like one of this package.
type handlerError struct{ error }

func handled(err error) error {
	if err == nil {
		return nil
	}
	return handlerError{err}
}

// again calls try until it succeeds, or fails for another reason than that the daemon is being restarted.
func (c *Client) again(ctx context.Context, try func() error) error {
	longest := time.Second
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, longest) {
		began := time.Now()
		err := try()
		var own handlerError
		if errors.As(err, &own) {
			return own.error
		}
		if !errors.Is(err, ErrNotRunning) || errors.Is(err, errClosed) {
			return err
		}
		if errors.As(err, new(absent)) && !c.answered.Load() {
			return err
		}
		if longest = time.Second; errors.Is(err, errUndelivered) {
			longest = 30 * time.Second
		}
		// After a run of more than a second, the pauses start over.
		if time.Since(began) > time.Second {
			pause = 50 * time.Millisecond
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %v", ctx.Err(), err)
		case <-time.After(pause):
		}
	}
}

func min(a, b time.Duration) time.Duration {
	if a < b {
		return a
	}
	return b
}

// connection returns the connection for calls, and opens it if there is none. The daemon's greeting is awaited without the
// lock, so that every call can be cancelled, and Close does not wait.
func (c *Client) connection(ctx context.Context) (*connection, error) {
	connection, err := c.opened()
	if err != nil {
		return nil, err
	}
	select {
	case <-connection.greeted:
		return connection, nil
	case <-connection.over:
		return nil, connection.failure
	case <-ctx.Done():
		return nil, c.withoutAnswer(ctx)
	}
}

func (c *Client) withoutAnswer(ctx context.Context) error {
	return fmt.Errorf("%w: the daemon has not answered on %s", ctx.Err(), c.socket)
}

func (c *Client) opened() (*connection, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.closed {
		return nil, errClosed
	}
	if c.current != nil && !c.current.hasEnded() {
		return c.current, nil
	}
	connection, err := c.dial()
	if err != nil {
		return nil, err
	}
	c.current = connection
	go connection.readAnswers()
	return connection, nil
}

// dial opens a connection, on which the first line is the answer to the greeting. It does not wait for the daemon.
func (c *Client) dial() (*connection, error) {
	// The path of a socket is connected to at once, or not at all.
	socket, err := net.Dial("unix", c.socket)
	switch {
	case err == nil:
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, absent{unanswered("the daemon is not running: nothing listens on " + c.socket)}
	case errors.Is(err, os.ErrPermission):
		return nil, absent{unanswered("you may not open " + c.socket + "; " + admission(c.socket))}
	case errors.Is(err, syscall.EAGAIN):
		return nil, c.unresponsive()
	default:
		var system syscall.Errno
		if errors.As(err, &system) {
			err = system
		}
		return nil, absent{unanswered(fmt.Sprintf("the daemon cannot be reached on %s: %v", c.socket, err))}
	}
	connection := &connection{
		client: c, socket: socket.(*net.UnixConn), reader: bufio.NewReaderSize(socket, 64<<10), last: 2,
		waiting: map[int64]chan incoming{}, greeted: make(chan struct{}), over: make(chan struct{}),
	}
	if err := connection.send("rpc.hello", map[string]any{"client": c.Name, "protocol": protocolVersion}, 1); err != nil {
		connection.close()
		return nil, err
	}
	return connection, nil
}

func (c *Client) unresponsive() error {
	return absent{unanswered("the daemon does not answer on " + c.socket)}
}

// admission says how to be allowed to open a socket.
func admission(path string) string {
	group := "holdfast"
	if info, err := os.Stat(path); err == nil {
		if owner, ok := info.Sys().(*syscall.Stat_t); ok {
			if owner.Gid == 0 {
				return "only root may open it"
			}
			if found, err := user.LookupGroupId(strconv.Itoa(int(owner.Gid))); err == nil {
				group = found.Name
			}
		}
	}
	return "join its group with: sudo usermod -aG " + group + " $USER, then log in again"
}

// valid refuses a text that is not UTF-8, which JSON would silently replace.
func valid(texts ...string) error {
	for _, text := range texts {
		if !utf8.ValidString(text) {
			return &Error{Message: fmt.Sprintf("%q is not valid UTF-8", text), Code: "invalid-parameters"}
		}
	}
	return nil
}

// connection is a connection to the daemon. Either readAnswers reads its answers, or a feed reads everything itself.
type connection struct {
	client *Client
	socket *net.UnixConn
	reader *bufio.Reader
	// writing is held while one line is written.
	writing sync.Mutex

	lock    sync.Mutex
	last    int64
	waiting map[int64]chan incoming
	// greeted is closed when the daemon has answered the greeting, and over when the connection has ended with failure.
	greeted chan struct{}
	once    sync.Once
	over    chan struct{}
	failure error
}

// incoming is a line from the daemon: an answer, or a notification.
type incoming struct {
	ID     int64           `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Failed *struct {
		Message string `json:"message"`
		Data    struct {
			Code       string `json:"code"`
			Hint       string `json:"hint"`
			ReasonCode *int   `json:"reasonCode"`
			ID         int64  `json:"id"`
		} `json:"data"`
	} `json:"error"`
}

func (l incoming) refusal() error {
	switch {
	case l.Failed == nil:
		return nil
	case l.Failed.Data.Code == "shutting-down":
		return errStopping
	default:
		data := l.Failed.Data
		return &Error{
			Message: l.Failed.Message, Code: data.Code, Hint: data.Hint, ReasonCode: data.ReasonCode, ID: data.ID,
		}
	}
}

func (l incoming) message() (Message, string, error) {
	var received struct {
		Subscription  string      `json:"subscription"`
		Session       string      `json:"session"`
		Topic         string      `json:"topic"`
		Payload       *string     `json:"payload"`
		PayloadBase64 []byte      `json:"payloadBase64"`
		QoS           int         `json:"qos"`
		Retain        bool        `json:"retain"`
		Duplicate     bool        `json:"duplicate"`
		ID            int64       `json:"id"`
		Properties    *Properties `json:"properties"`
	}
	if err := json.Unmarshal(l.Params, &received); err != nil {
		return Message{}, "", err
	}
	payload := received.PayloadBase64
	if received.Payload != nil {
		payload = []byte(*received.Payload)
	}
	return Message{
		Session: received.Session, Topic: received.Topic, Payload: payload, QoS: received.QoS, Retain: received.Retain,
		Duplicate: received.Duplicate, ID: received.ID, Properties: received.Properties,
	}, received.Subscription, nil
}

func (c *connection) close() { c.end(errEnded) }

// end closes the connection. The calls that wait for their answers end with failure.
func (c *connection) end(failure error) {
	c.once.Do(func() {
		c.failure = failure
		close(c.over)
		c.socket.Close()
	})
}

// leave ends a feed. The daemon drops the calls of a connection that is closed. So if messages were acknowledged, it first
// closes only the sending side, and reads to the end.
func (c *connection) leave() {
	if c.last > 2 && !c.hasEnded() && c.socket.CloseWrite() == nil {
		c.socket.SetReadDeadline(time.Now().Add(farewellTime))
		io.Copy(io.Discard, c.reader)
	}
	c.close()
}

func (c *connection) hasEnded() bool {
	select {
	case <-c.over:
		return true
	default:
		return false
	}
}

var (
	errEnded    = unanswered("the daemon closed the connection")
	errStopping = unanswered("the daemon is stopping")
	errClosed   = unanswered("the client was closed")

	errUndelivered = unanswered("the message is accepted, and not delivered yet")
)

// send writes a call. The number 0 is for calls whose answer matters only if it is an error.
func (c *connection) send(method string, params any, number int64) error {
	if params == nil {
		params = map[string]any{}
	}
	if number == 0 {
		c.lock.Lock()
		c.last++
		number = c.last
		c.lock.Unlock()
	}
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	// Otherwise each of <, > and & would take six bytes.
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(map[string]any{"jsonrpc": "2.0", "id": number, "method": method, "params": params})
	if err != nil {
		return err
	}
	if line.Len() > maximumLine {
		return &Error{
			Message: fmt.Sprintf("a call of %s has %d bytes, but the maximum is %d", method, line.Len(), maximumLine),
			Code:    "invalid-request", Hint: "send a larger message in parts",
		}
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if _, err := c.socket.Write(line.Bytes()); err != nil {
		c.close()
		return errEnded
	}
	return nil
}

func (c *connection) read() (incoming, error) {
	var line incoming
	text, err := c.reader.ReadBytes('\n')
	if err != nil {
		if c.hasEnded() {
			return line, c.failure
		}
		return line, errEnded
	}
	return line, json.Unmarshal(text, &line)
}

// greet reads the answer to the greeting.
func (c *connection) greet() error {
	late := time.AfterFunc(greetingTime, func() { c.end(c.client.unresponsive()) })
	defer late.Stop()
	_, err := c.accepted()
	if err == nil {
		c.client.answered.Store(true)
	}
	return err
}

// accepted reads a line. The error is what the line refuses, or that it cannot be read.
func (c *connection) accepted() (incoming, error) {
	line, err := c.read()
	if err == nil {
		err = line.refusal()
	}
	return line, err
}

func (c *connection) readAnswers() {
	defer c.close()
	if err := c.greet(); err != nil {
		c.end(err)
		return
	}
	close(c.greeted)
	for {
		line, err := c.read()
		if err != nil {
			return
		}
		if line.ID == 0 && line.Failed != nil {
			// The daemon could not tell which call it was, so it is unknown who is waiting for the answer.
			c.end(line.refusal())
			return
		}
		c.lock.Lock()
		answer := c.waiting[line.ID]
		delete(c.waiting, line.ID)
		c.lock.Unlock()
		if answer != nil {
			answer <- line
		}
	}
}

func (c *connection) call(ctx context.Context, method string, params any, result any) error {
	answer := make(chan incoming, 1)
	c.lock.Lock()
	c.last++
	number := c.last
	c.waiting[number] = answer
	c.lock.Unlock()
	defer func() {
		c.lock.Lock()
		delete(c.waiting, number)
		c.lock.Unlock()
	}()
	if err := c.send(method, params, number); err != nil {
		return err
	}
	var line incoming
	select {
	case line = <-answer:
	case <-ctx.Done():
		if c.hasEnded() {
			return c.failure
		}
		return ctx.Err()
	case <-c.over:
		// The answer may have come just before.
		select {
		case line = <-answer:
		default:
			return c.failure
		}
	}
	if err := line.refusal(); err != nil || result == nil {
		return err
	}
	return json.Unmarshal(line.Result, result)
}
