import ControlAPI
import Glibc
import HoldfastClient
import NIOCore
import NIOPosix
import Support
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(10)))
struct HoldfastClientTests {
    private static func status(_ name: String, _ state: SessionState = .connected) -> SessionStatus {
        SessionStatus(session: name, state: state, since: Timestamp(rawValue: 0))
    }

    /// Runs the daemon of the test beside the client of the test; both must end without an error.
    private func serve(
        _ daemon: @escaping @Sendable (inout LineServer.Accepting) async throws -> Void,
        bufferedElements: Int = 64, bufferedBytes: Int = 1 << 20,
        _ client: (HoldfastClient) async throws -> Void
    ) async throws {
        try await withSocket { socket in
            let server = try await LineServer.start(socket)
            async let served: Void = server.run(daemon)
            let attached = impatientClient(socket, bufferedElements: bufferedElements, bufferedBytes: bufferedBytes)
            let outcome: Result<Void, any Error>
            do { outcome = .success(try await client(attached)) } catch { outcome = .failure(error) }
            await attached.close()
            try outcome.get()
            try await served
        }
    }

    @Test func `the greeting returns version and roles`() async throws {
        try await serve { accepting in
            try await accepting.greet { try await $0.end() }
        } _: { client in
            let hello = try await client.attach()
            #expect(hello.version == "9.9")
            #expect(hello.roles == [.observe])
        }
    }

    @Test func `calls are pipelined and answered out of order`() async throws {
        try await serve { accepting in
            try await accepting.greet { peer in
                var requests: [(RequestID, String)] = []
                for _ in 0..<8 {
                    let (id, _, parameters) = try await peer.request()
                    requests.append((id, parameters?["session"]?.text ?? ""))
                }
                for (id, name) in requests.reversed() { try await peer.answer(id, Self.status(name)) }
                try await peer.end()
            }
        } _: { client in
            try await withThrowingTaskGroup(of: Void.self) { group in
                for number in 0..<8 {
                    group.addTask {
                        let status = try await client.call(SessionStatusMethod.self, .init(session: "s\(number)"))
                        #expect(status.session == "s\(number)")
                    }
                }
                try await group.waitForAll()
            }
        }
    }

    @Test func `calls in order are written in order and refusals keep their place`() async throws {
        try await serve { accepting in
            try await accepting.greet { peer in
                for number in 0..<5 {
                    let (id, method, parameters) = try await peer.request()
                    #expect(method == "message.publish")
                    #expect(parameters?["payload"] == .string("\(number)"))
                    if number == 2 {
                        try await peer.write(OutgoingLine.failure(id, .outboxFull("main")))
                    } else {
                        let result = MessagePublishMethod.Result(
                            id: Int64(number), accepted: true, delivered: false, reasonCode: nil)
                        try await peer.answer(id, result)
                    }
                }
                try await peer.end()
            }
        } _: { client in
            let results = try await client.callInOrder(
                MessagePublishMethod.self,
                (0..<5).map { .init(session: "main", topic: "t", payload: .init(text: "\($0)")) })
            #expect(results.map { try? $0.get().id } == [0, 1, nil, 3, 4])
            guard case .failure(.refused(let error)) = results[2] else {
                Issue.record("not refused: \(results[2])")
                return
            }
            #expect(error.known == .outboxFull)
        }
    }

    @Test func `a watch begins with a snapshot and an event that follows at once is not lost`() async throws {
        try await serve { accepting in
            try await accepting.greet { peer in
                let (id, _, _) = try await peer.request()
                let watch = WatchID(rawValue: "w1")
                let answer = OutgoingLine.answer(
                    id, result: SessionWatchMethod.Result(watch: watch, snapshot: .init(sessions: []), sequence: 4))
                var event = SessionEvent(
                    watch: watch, sequence: 5, time: .init(rawValue: 0), session: "a", event: .stateChanged)
                event.state = .connecting
                let unknown = #"{"jsonrpc":"2.0","method":"invented.later","params":{"x":1}}"# + "\n"
                try await peer.write(answer + Array(unknown.utf8) + (OutgoingLine.notification(event) ?? []))
                try await peer.end()
            }
        } _: { client in
            var elements = try await client.watch(session: "a").makeAsyncIterator()
            guard case .snapshot(let result) = try await elements.next() else {
                Issue.record("no snapshot")
                return
            }
            #expect(result.sequence == 4)
            guard case .event(let event) = try await elements.next() else {
                Issue.record("no event")
                return
            }
            #expect(event.state == .connecting)
        }
    }

    @Test func `a publish that begins while the daemon is being restarted waits for it`() async throws {
        try await withSocket { socket in
            let client = impatientClient(socket)
            let server = try await LineServer.start(socket)
            async let served: Void = server.run { accepting in
                try await accepting.greet { _ in }
                // Another connection that ends before the greeting.
                try await accepting.accept { peer in _ = try await peer.request() }
                try await accepting.greet { peer in
                    let (id, method, _) = try await peer.request()
                    #expect(method == "message.publish")
                    try await peer.answer(
                        id, MessagePublishMethod.Result(id: 7, accepted: true, delivered: false, reasonCode: nil))
                }
            }
            try await client.attach()
            let message = MessagePublishMethod.Parameters(session: "a", topic: "t", payload: .init(text: "x"))
            #expect(try await client.publish(message).id == 7)
            try await served
        }
    }

    @Test func `a message that was sent before the daemon went away may have been accepted`() async throws {
        try await withSocket { socket in
            let client = impatientClient(socket)
            let server = try await LineServer.start(socket)
            async let served: Void = server.run { accepting in
                try await accepting.greet { peer in _ = try await peer.request() }
                // A daemon that the client does not understand, and does not wait for.
                try await accepting.accept { peer in
                    let (id, _, _) = try await peer.request()
                    try await peer.answer(
                        id, RPCHelloMethod.Result(version: "9.9", protocol: 2, capabilities: [], roles: []))
                    try await peer.end()
                }
            }
            let mismatch = ClientError.versionMismatch(daemon: "2 (version 9.9)")
            await #expect(throws: ClientError.publishInDoubt(key: "k", because: mismatch)) {
                try await client.publish(Self.message)
            }
            try await served
        }
    }

    private static let message = MessagePublishMethod.Parameters(
        session: "a", topic: "t", payload: .init(text: "x"), key: "k")

    @Test func `a call that a dismissal ends may have been carried out, and a publish is repeated`() async throws {
        let reason = RPCError.roleLost(.message)
        let refusal = RPCError.notPermitted(role: .message, others: [])
        try await serve { accepting in
            try await accepting.greet { peer in
                _ = try await peer.request()
                try await peer.write(OutgoingLine.failure(.null, reason))
                try await peer.end()
            }
            try await accepting.greet { peer in
                _ = try await peer.request()
                try await peer.write(OutgoingLine.failure(.null, reason))
                try await peer.end()
            }
            // The call is repeated, and refused before the daemon looks for its key.
            try await accepting.greet { peer in
                let (id, _, parameters) = try await peer.request()
                #expect(parameters?["key"] == .string("k"))
                try await peer.write(OutgoingLine.failure(id, refusal))
                try await peer.end()
            }
        } _: { client in
            await #expect(throws: ClientError.dismissed(reason)) {
                try await client.call(SessionListMethod.self, NoParameters())
            }
            await #expect(throws: ClientError.publishInDoubt(key: "k", because: .refused(refusal))) {
                try await client.publish(Self.message)
            }
        }
    }

    @Test func `a daemon that ends every connection without an answer is not tried forever`() async throws {
        try await withSocket { socket in
            var options = HoldfastClient.Options()
            options.attachTimeout = .seconds(600)
            options.reattachDelays = [.milliseconds(1)]
            options.patience = .milliseconds(500)
            let client = HoldfastClient(socket: socket, options: options)
            let server = try await LineServer.start(socket)
            let isOver = Mutex(false)
            async let served: Void = server.run { accepting in
                while !isOver.withLock({ $0 }) {
                    try await accepting.greet { if !isOver.withLock({ $0 }) { _ = try await $0.request() } }
                }
            }
            let error = await #expect(throws: ClientError.self) { try await client.publish(Self.message) }
            guard case .publishInDoubt(key: "k", because: _)? = error else {
                Issue.record("not in doubt: \(String(describing: error))")
                return
            }
            isOver.withLock { $0 = true }
            // For the server, if it waits for another connection.
            _ = try? await client.attach()
            try await served
            await client.close()
        }
    }

    @Test(arguments: [false, true])
    func `a publish that is cancelled while the daemon is away ends, and is in doubt if it was sent`(
        isSent: Bool
    ) async throws {
        try await withSocket { socket in
            let client = impatientClient(socket)
            let server = try await LineServer.start(socket)
            async let served: Void = server.run { accepting in
                try await accepting.greet { if isSent { _ = try await $0.request() } }
            }
            try await client.attach()
            if !isSent {
                try await served
                // Whatever it meets: the client has seen the end of the connection then.
                _ = try? await client.call(SessionListMethod.self, NoParameters())
            }
            let publish = Task { () -> ClientError? in
                do throws(ClientError) {
                    _ = try await client.publish(Self.message)
                    return nil
                } catch { return error }
            }
            try await served
            publish.cancel()
            #expect(await publish.value == (isSent ? .publishInDoubt(key: "k", because: .cancelled) : .cancelled))
        }
    }

    @Test func `a message that is not answered in time may have been accepted`() async throws {
        try await serve { accepting in
            try await accepting.greet { peer in
                _ = try await peer.request()
                try await peer.end()
            }
        } _: { client in
            await #expect(throws: ClientError.publishInDoubt(key: "k", because: .timeout)) {
                try await client.publish(Self.message, timeout: .milliseconds(1))
            }
        }
    }

    @Test func `a watch continues after the last event when the daemon was restarted`() async throws {
        try await withSocket { socket in
            let client = impatientClient(socket)
            let first = try await LineServer.start(socket)
            async let before: Void = first.run { accepting in
                try await accepting.greet { peer in
                    let (id, _, parameters) = try await peer.request()
                    #expect(parameters?["since"] == nil)
                    let watch = WatchID(rawValue: "w1")
                    try await peer.answer(
                        id,
                        SessionWatchMethod.Result(
                            watch: watch, snapshot: .init(sessions: []), sequence: 4, epoch: "first"))
                    let event = SessionEvent(
                        watch: watch, sequence: 7, time: .init(rawValue: 0), session: "a", event: .displaced)
                    try await peer.write(OutgoingLine.notification(event) ?? [])
                }
            }
            var elements = try await client.watch().makeAsyncIterator()
            guard case .snapshot = try await elements.next(), case .event = try await elements.next() else {
                Issue.record("no snapshot and event")
                return
            }
            guard case .detached(.connectionLost) = try await elements.next() else {
                Issue.record("the end of the connection was not told")
                return
            }
            try await before

            let second = try await LineServer.start(socket)
            async let after: Void = second.run { accepting in
                try await accepting.greet { peer in
                    let (id, method, parameters) = try await peer.request()
                    #expect(method == "session.watch")
                    #expect(parameters?["since"] == .integer(7))
                    #expect(parameters?["epoch"] == .string("first"), "so that it is told that the numbers began again")
                    try await peer.answer(
                        id,
                        SessionWatchMethod.Result(
                            watch: .init(rawValue: "w9"), snapshot: .init(sessions: [Self.status("a")]), sequence: 8,
                            epoch: "second", restarted: true))
                }
            }
            guard case .snapshot(let again) = try await elements.next() else {
                Issue.record("the watch was not made again")
                return
            }
            #expect(again.snapshot.sessions.map(\.session) == ["a"])
            #expect(again.restarted)
            guard case .detached = try await elements.next() else {
                Issue.record("the end of the second connection was not told")
                return
            }
            try await after

            let third = try await LineServer.start(socket)
            async let last: Void = third.run { accepting in
                try await accepting.greet { peer in
                    let (id, _, parameters) = try await peer.request()
                    #expect(parameters?["since"] == .integer(0), "the new numbers, of which none was seen")
                    #expect(parameters?["epoch"] == .string("second"))
                    try await peer.answer(
                        id,
                        SessionWatchMethod.Result(
                            watch: .init(rawValue: "w1"), snapshot: .init(sessions: []), sequence: 8, epoch: "second"))
                    try await peer.end()
                }
            }
            guard case .snapshot(let unchanged) = try await elements.next() else {
                Issue.record("the watch was not made again")
                return
            }
            #expect(!unchanged.restarted)
            await client.close()
            #expect(try await elements.next() == nil)
            try await last
        }
    }

    @Test func `what the daemon dropped because too much was unread is reported`() async throws {
        try await serve { accepting in
            try await accepting.greet { peer in
                let (id, _, _) = try await peer.request()
                try await peer.answer(
                    id, MessageSubscribeMethod.Result(subscription: .init(rawValue: "s1"), grantedQoS: .atMostOnce))
                var event = SessionEvent(
                    watch: .init(rawValue: "s1"), sequence: 0, time: .init(rawValue: 0), session: "main",
                    event: .messageDropped)
                event.count = 7
                try await peer.write(OutgoingLine.notification(event) ?? [])
                try await peer.end()
            }
        } _: { client in
            var elements = try await client.subscribe(.init(session: "main", filter: "a/#")).makeAsyncIterator()
            _ = try await elements.next()
            #expect(try await elements.next() == .dropped(7))
        }
    }

    @Test func `a subscription ends with an error when the session is removed`() async throws {
        try await serve { accepting in
            try await accepting.greet { peer in
                let (id, _, _) = try await peer.request()
                try await peer.answer(
                    id, MessageSubscribeMethod.Result(subscription: .init(rawValue: "s1"), grantedQoS: .atMostOnce))
                let event = SessionEvent(
                    watch: .init(rawValue: "s1"), sequence: 0, time: .init(rawValue: 0), session: "main",
                    event: .sessionRemoved)
                try await peer.write(OutgoingLine.notification(event) ?? [])
                try await peer.end()
            }
        } _: { client in
            var elements = try await client.subscribe(.init(session: "main", filter: "a/#")).makeAsyncIterator()
            _ = try await elements.next()
            await #expect(throws: ClientError.refused(.sessionRemoved("main"))) { try await elements.next() }
        }
    }

    @Test func `a subscription is made again after a reconnect, and ends if the daemon refuses it`() async throws {
        try await serve { accepting in
            try await accepting.greet { peer in
                let (id, _, parameters) = try await peer.request()
                #expect(parameters?["filter"] == .string("a/#"))
                let subscription = SubscriptionID(rawValue: "s1")
                try await peer.answer(
                    id, MessageSubscribeMethod.Result(subscription: subscription, grantedQoS: .atMostOnce))
                let message = ReceivedMessage(
                    subscription: subscription, session: "main", id: 1, topic: "a/b", payload: .init(bytes: [0xFF]),
                    qos: .atMostOnce, retain: false, duplicate: false)
                try await peer.write(OutgoingLine.notification(message) ?? [])
            }
            try await accepting.greet { peer in
                let (id, method, _) = try await peer.request()
                #expect(method == "message.subscribe")
                try await peer.write(OutgoingLine.failure(id, .unknownSession("main", among: [])))
                try await peer.end()
            }
        } _: { client in
            var elements = try await client.subscribe(.init(session: "main", filter: "a/#")).makeAsyncIterator()
            guard case .subscribed(let result) = try await elements.next(),
                case .message(let message) = try await elements.next(),
                case .detached = try await elements.next()
            else {
                Issue.record("not subscribed, message, detached")
                return
            }
            #expect(result.grantedQoS == .atMostOnce)
            #expect(message.payload.bytes == [0xFF])
            let error = await #expect(throws: ClientError.self) { try await elements.next() }
            guard case .refused(let refusal)? = error else {
                Issue.record("not refused: \(String(describing: error))")
                return
            }
            #expect(refusal.known == .unknownSession)
        }
    }

    @Test func `a slow reader is told how many elements it missed`() async throws {
        try await serve(
            { accepting in
                try await accepting.greet { peer in
                    let (id, _, _) = try await peer.request()
                    let watch = WatchID(rawValue: "w1")
                    var lines = OutgoingLine.answer(
                        id, result: SessionWatchMethod.Result(watch: watch, snapshot: .init(sessions: []), sequence: 0))
                    for sequence in 1...10 {
                        let event = SessionEvent(
                            watch: watch, sequence: Int64(sequence), time: .init(rawValue: 0), session: "a",
                            event: .pathChanged)
                        lines += OutgoingLine.notification(event) ?? []
                    }
                    try await peer.write(lines)
                    let (second, _, _) = try await peer.request()
                    try await peer.answer(second, Self.status("a"))
                    let (third, _, _) = try await peer.request()
                    let last = SessionEvent(
                        watch: watch, sequence: 11, time: .init(rawValue: 0), session: "a", event: .pathChanged)
                    try await peer.write(
                        (OutgoingLine.notification(last) ?? []) + OutgoingLine.answer(third, result: Self.status("a")))
                    try await peer.end()
                }
            }, bufferedElements: 4
        ) { client in
            var elements = try await client.watch().makeAsyncIterator()
            // The answer comes behind the ten events, so they have been handled when it is here.
            _ = try await client.call(SessionStatusMethod.self, .init(session: "a"))
            var taken: [SessionWatch.Element?] = []
            for _ in 0..<4 { taken.append(try await elements.next()) }
            // Also if nothing happens after it.
            #expect(try await elements.next() == .dropped(7))
            _ = try await client.call(SessionStatusMethod.self, .init(session: "a"))
            guard case .event(let event) = try await elements.next() else {
                Issue.record("no event after the gap")
                return
            }
            #expect(event.sequence == 11)
        }
    }

    @Test func `what waits for a reader is bounded by its bytes too, and one message of any length may wait`()
        async throws
    {
        @Sendable func message(_ id: Int64) -> [UInt8] {
            let message = ReceivedMessage(
                subscription: SubscriptionID(rawValue: "s1"), session: "main", id: id, topic: "a",
                payload: .init(text: String(repeating: "x", count: id == 1 ? 5000 : 300)), qos: .atLeastOnce,
                retain: false, duplicate: false)
            return OutgoingLine.notification(message) ?? []
        }
        try await serve(
            { accepting in
                try await accepting.greet { peer in
                    let (id, _, _) = try await peer.request()
                    try await peer.answer(
                        id, MessageSubscribeMethod.Result(subscription: .init(rawValue: "s1"), grantedQoS: .atLeastOnce)
                    )
                    for ids in [1...3, 4...12, 13...13] as [ClosedRange<Int64>] {
                        let (next, _, _) = try await peer.request()
                        for id in ids { try await peer.write(message(id)) }
                        try await peer.answer(next, Self.status("a"))
                    }
                    try await peer.end()
                }
            }, bufferedBytes: 2000
        ) { client in
            var elements = try await client.subscribe(.init(session: "main", filter: "a")).makeAsyncIterator()
            func take() async throws -> String {
                switch try await elements.next() {
                case .message(let message)?: "\(message.id)"
                case .dropped(let count)?: "\(count) dropped"
                case .subscribed?: "subscribed"
                case .detached?: "detached"
                case nil: "the end"
                }
            }
            func receive() async throws { _ = try await client.call(SessionStatusMethod.self, .init(session: "a")) }
            #expect(try await take() == "subscribed")
            try await receive()
            #expect(try await take() == "1")
            #expect(try await take() == "2 dropped")
            try await receive()
            var taken: [String] = []
            repeat { taken.append(try await take()) } while taken.last?.hasSuffix("dropped") == false
            let kept = taken.dropLast().compactMap(Int.init)
            #expect(kept == Array(4..<(4 + kept.count)) && (2...6).contains(kept.count), "\(taken)")
            #expect(taken.last == "\(9 - kept.count) dropped")
            try await receive()
            #expect(try await take() == "13")
        }
    }

    @Test func `a refusal that comes once the session is connected ends the subscription`() async throws {
        try await serve { accepting in
            try await accepting.greet { peer in
                let (id, _, _) = try await peer.request()
                try await peer.answer(
                    id, MessageSubscribeMethod.Result(subscription: .init(rawValue: "s1"), grantedQoS: nil))
                for line in LineServer.lateAnswers { try await peer.write(line) }
                let (left, method, parameters) = try await peer.request()
                #expect(method == "message.unsubscribe" && parameters?["keep"] != .bool(true))
                try await peer.answer(left, JSONValue.object([:]))
                try await peer.end()
            }
        } _: { client in
            var elements = try await client.subscribe(.init(session: "main", filter: "a/#")).makeAsyncIterator()
            _ = try await elements.next()
            let error = await #expect(throws: ClientError.self) { try await elements.next() }
            #expect(error == .refused(.subscriptionRefused("a/#", "not authorized (0x87)", reasonCode: 0x87)))
        }
    }

    @Test func `an error of the daemon is shown with its hint`() {
        let error = ClientError.refused(.unknownSession("mian", among: ["main"]))
        #expect(error.description == "there is no session \"mian\"; did you mean main?")
        #expect(ClientError.refused(.invalidParameters("no")).description == "no")
    }

    @Test func `waiting calls fail when the connection ends, and the next call reconnects`() async throws {
        try await serve { accepting in
            try await accepting.greet { peer in _ = try await peer.request() }
            try await accepting.greet { peer in
                let (id, _, _) = try await peer.request()
                try await peer.answer(id, SessionSnapshot(sessions: []))
                try await peer.end()
            }
        } _: { client in
            await #expect(throws: ClientError.connectionLost) {
                try await client.call(SessionListMethod.self, NoParameters())
            }
            let list = try await client.call(SessionListMethod.self, NoParameters())
            #expect(list.sessions.isEmpty)
        }
    }

    @Test func `a socket without a listener means that the daemon is not running`() async throws {
        try await withSocket { socket in
            await #expect(throws: ClientError.notRunning(socket: socket)) {
                try await HoldfastClient(socket: socket).attach()
            }
            // The socket of a killed daemon is there, without a listener.
            let descriptor = Glibc.socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
            var address = sockaddr_un()
            address.sun_family = sa_family_t(AF_UNIX)
            withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: socket.utf8) }
            let bound = withUnsafePointer(to: &address) { pointer in
                pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
                }
            }
            #expect(bound == 0)
            close(descriptor)
            await #expect(throws: ClientError.notRunning(socket: socket)) {
                try await HoldfastClient(socket: socket).attach()
            }
        }
    }

    @Test func `a path that is too long is unreachable and says why`() async throws {
        let socket = "/tmp/" + String(repeating: "x", count: 200)
        let error = await #expect(throws: ClientError.self) { try await HoldfastClient(socket: socket).attach() }
        guard case .unreachable(_, let reason)? = error else {
            Issue.record("not unreachable: \(String(describing: error))")
            return
        }
        #expect(reason.contains("too long") || reason.contains("longer than"))
    }

    @Test(arguments: [
        #"{"jsonrpc":"2.0","id":1,"result":{"version":"2.0","protocol":2,"capabilities":[],"roles":[]}}"#,
        #"{"jsonrpc":"2.0","id":1,"error":{"code":-32051,"message":"no","data":{"code":"version-mismatch"}}}"#,
    ])
    func `another version of the protocol is a version mismatch`(_ answer: String) async throws {
        try await serve { accepting in
            try await accepting.accept { peer in
                _ = try await peer.request()
                try await peer.write(answer)
                try await peer.end()
            }
        } _: { client in
            let error = await #expect(throws: ClientError.self) { try await client.attach() }
            guard case .versionMismatch? = error else {
                Issue.record("not a version mismatch: \(String(describing: error))")
                return
            }
        }
    }

    @Test(arguments: ["x", "[]]", #"{"jsonrpc":"2.0"}"#, LongText(" ", (1 << 16) + 1)])
    func `a malformed line ends the connection`(_ line: LongText) async throws {
        try await serve { accepting in
            try await accepting.greet { peer in
                _ = try await peer.request()
                try await peer.write(line.text)
                try await peer.end()
            }
        } _: { client in
            let error = await #expect(throws: ClientError.self) {
                try await client.call(SessionListMethod.self, NoParameters())
            }
            guard case .invalidAnswer? = error else {
                Issue.record("accepted: \(String(describing: error))")
                return
            }
        }
    }

    @Test func `a request too long for the daemon is not sent`() async throws {
        try await serve { accepting in
            try await accepting.greet { try await $0.endInSilence() }
        } _: { client in
            let payload = MessagePayload(bytes: [UInt8](repeating: 0x61, count: RequestLine.maximumPayloadLineLength))
            await #expect(throws: ClientError.requestTooLong) {
                try await client.call(
                    MessagePublishMethod.self, .init(session: "a", topic: "t", payload: payload))
            }
        }
    }

    @Test func `a missing answer is a timeout, and a late one is ignored`() async throws {
        try await serve { accepting in
            try await accepting.greet { peer in
                let (late, _, _) = try await peer.request()
                let (id, _, _) = try await peer.request()
                try await peer.answer(late, SessionSnapshot(sessions: [Self.status("late")]))
                try await peer.answer(id, SessionSnapshot(sessions: []))
                try await peer.end()
            }
        } _: { client in
            await #expect(throws: ClientError.timeout) {
                try await client.call(SessionListMethod.self, NoParameters(), timeout: .milliseconds(1))
            }
            let list = try await client.call(SessionListMethod.self, NoParameters())
            #expect(list.sessions.isEmpty)
        }
    }

    @Test func `a daemon that does not answer the greeting has not been asked anything`() async throws {
        try await withSocket { socket in
            // The kernel accepts the connection.
            let listener = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
                .serverChannelOption(.autoRead, value: false).bind(unixDomainSocketPath: socket).get()
            var options = HoldfastClient.Options()
            options.attachTimeout = .milliseconds(100)
            let client = HoldfastClient(socket: socket, options: options)
            await #expect(throws: ClientError.unresponsive(socket: socket)) {
                try await client.call(SessionListMethod.self, NoParameters())
            }
            await client.close()
            try await listener.close().get()
        }
    }

    enum FeedKind: String, CaseIterable {
        case watch, subscription, consumer

        func open(_ client: HoldfastClient) async throws(ClientError) {
            switch self {
            case .watch: _ = try await client.watch()
            case .subscription: _ = try await client.subscribe(.init(session: "main", filter: "a"))
            case .consumer: _ = try await client.consume(session: "main", filter: "a", consumer: "c")
            }
        }
    }

    @Test(arguments: FeedKind.allCases)
    func `a feed whose caller is cancelled before the answer ends, here and at the daemon`(kind: FeedKind) async throws
    {
        let (requested, asked) = AsyncStream.makeStream(of: Void.self)
        let (cancelled, left) = AsyncStream.makeStream(of: Void.self)
        let (ended, served) = AsyncStream.makeStream(of: Void.self)
        try await serve { accepting in
            try await accepting.greet { peer in
                let id = try await peer.request().0
                defer { served.finish() }
                asked.finish()
                for await _ in cancelled {}
                let result = """
                    {"watch":"w1","epoch":"e","sequence":1,"restarted":false,"subscription":"s1",
                     "snapshot":{"sessions":[]}}
                    """
                try await peer.answer(id, try JSONValue(parsing: Array(result.utf8)[...]))
                let (_, method, parameters) = try await peer.request()
                #expect(method == (kind == .watch ? "session.unwatch" : "message.unsubscribe"))
                #expect(parameters?["keep"] == (kind == .consumer ? .bool(true) : nil))
            }
        } _: { client in
            let opening = Task { () -> ClientError? in
                do throws(ClientError) {
                    try await kind.open(client)
                    return nil
                } catch { return error }
            }
            for await _ in requested {}
            opening.cancel()
            #expect(await opening.value == .cancelled)
            left.finish()
            for await _ in ended {}
        }
    }

    @Test func `a cancelled call ends and a closed client refuses`() async throws {
        try await serve { accepting in
            try await accepting.greet { try await $0.end() }
        } _: { client in
            try await client.attach()
            let call = Task { () -> ClientError? in
                do throws(ClientError) {
                    _ = try await client.call(SessionListMethod.self, NoParameters())
                    return nil
                } catch { return error }
            }
            call.cancel()
            #expect(await call.value == .cancelled)
            await client.close()
            await #expect(throws: ClientError.closed) { try await client.attach() }
        }
    }
}
