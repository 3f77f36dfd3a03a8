import Configuration
import ControlAPI
import Glibc
import Logging
import MQTT
import SessionCore
import Support
import Systemd
import Testing
import Transport

@testable import Agent

/// The noise budget: one line when the session is lost, one when it is back, summaries after 1, 5, 15 and every 60
/// minutes, nothing while connected.
struct SessionLogTests {
    private let recorded = RecordingLog()
    private var log: SessionLog
    private var state = SessionState.disconnected

    private let remedies: Remedies

    init() throws {
        let name = try #require(SessionName("main"))
        log = SessionLog(session: name, logger: recorded.logger)
        var configuration = SessionConfiguration()
        configuration.clientID = "edge-42"
        configuration.password = .file("/etc/holdfast/main.secret")
        remedies = Remedies(session: name, configuration: configuration)
    }

    private var told: [String] {
        recorded.lines.filter { $0.level >= .info }.map(\.message)
    }

    private static func at(_ seconds: Int) -> Instant { Instant(nanoseconds: 0).advanced(by: .seconds(seconds)) }

    private mutating func change(
        to new: SessionState, _ phase: Phase? = nil, because code: Reason.Code = .refused,
        attempt: Int = 0, retryIn: Int? = nil, at seconds: Int
    ) {
        log.tell(
            .stateChanged(from: state, lasted: .zero), status: status(new, phase, code, attempt, retryIn, seconds),
            endpoint: new == .connected ? "mqtt://a:1883" : nil, remedies: remedies, at: Self.at(seconds))
        state = new
    }

    private func status(
        _ state: SessionState, _ phase: Phase?, _ code: Reason.Code, _ attempt: Int, _ retryIn: Int?,
        _ seconds: Int
    ) -> SessionMachine.Status {
        var machine = SessionMachine(paths: [nil], seed: 1, at: Self.at(0)).status
        machine.state = state
        machine.phase = phase
        machine.reason = Reason(code)
        machine.attempt = attempt
        machine.retryAt = retryIn.map { Self.at(seconds + $0) }
        return machine
    }

    private mutating func back(after seconds: Int) {
        log.tell(
            .reconnectCompleted(.quick, outage: .seconds(seconds)),
            status: status(.connected, nil, .refused, 0, nil, seconds), endpoint: "mqtt://a:1883",
            remedies: remedies, at: Self.at(seconds))
        change(to: .connected, at: seconds)
    }

    @Test mutating func `a refused subscription names the consumers affected, in fields as well`() throws {
        let consumer = try #require(ConsumerName("orders"))
        log.subscriptionChanged(
            .init(
                filter: "a/#", qos: .atLeastOnce, state: .refused, reasonCode: 0x87, message: "not authorized (0x87)"),
            ofConsumers: [consumer], at: Self.at(0))
        let line = try #require(recorded.lines.first)
        #expect(
            line.message
                == "main: the server refuses the subscription to a/#, and nothing new arrives for the durable consumer "
                + "orders: not authorized (0x87); it is requested again when a program subscribes")
        #expect(line.fields["MESSAGE_ID"] == MessageID.subscriptionRefused.description)
        #expect(line.fields["HOLDFAST_SESSION"] == "main")
    }

    @Test mutating func `what the kernel refused is told with its number`() {
        change(to: .connecting, .dialing, at: 0)
        var failed = status(.failed, nil, .unreachable, 1, nil, 1)
        failed.reason = Reason(TransportFailure(.unreachable, "No route to host", systemError: EHOSTUNREACH))
        log.tell(
            .stateChanged(from: .connecting, lasted: .zero), status: failed, endpoint: nil, remedies: remedies,
            at: Self.at(1))
        #expect(recorded.lines.last?.fields["ERRNO"] == "\(EHOSTUNREACH)")
        change(to: .connected, at: 2)
        #expect(recorded.lines.last?.fields["ERRNO"] == nil)
    }

    @Test mutating func `a first connect is one line`() {
        change(to: .connecting, .resolving, at: 0)
        change(to: .connecting, .dialing, at: 0)
        change(to: .connected, at: 1)
        #expect(told == ["main: connected to mqtt://a:1883"])
        #expect(recorded.lines.first?.fields["MESSAGE_ID"] == MessageID.sessionConnected.description)
        #expect(recorded.lines.first?.fields["HOLDFAST_SESSION"] == "main")
        #expect(recorded.lines.first?.fields["HOLDFAST_STATE"] == "connected")
        #expect(recorded.lines.first?.fields["HOLDFAST_PREVIOUS_STATE"] == "connecting")
        #expect(recorded.lines.first?.fields["HOLDFAST_ENDPOINT"] == "mqtt://a:1883")
    }

    @Test mutating func `every entry has the fields that its explanation uses`() throws {
        for group in [ReasonGroup.auth, .displaced, .config] {
            change(to: .connecting, .dialing, at: 0)
            change(to: .connected, at: 1)
            change(to: .reconnecting, .waiting, retryIn: 1, at: 2)
            for minute in [1, 5, 15] { change(to: .reconnecting, .dialing, attempt: minute, at: minute * 60 + 3) }
            back(after: 1000)
            log.tell(
                .credentialExpiring(at: Self.at(2000)), status: status(.connected, nil, .answered, 0, nil, 0),
                endpoint: nil, remedies: remedies, at: Self.at(1500))
            let code = try #require(Reason.Code.allCases.first { $0.group == group })
            change(to: .failed, because: code, at: 1600)
            change(to: .disconnected, because: .userDisconnect, at: 1700)
        }
        log.quarantined(MessageSequence(rawValue: 1), "too large", at: Self.at(0))
        log.dropped("it expired", at: Self.at(0))
        var explained: Set<String> = []
        for line in recorded.lines {
            guard let id = line.fields["MESSAGE_ID"] else { continue }
            let entry = try #require(Catalog.entries[id])
            for reference in entry.references {
                #expect(line.fields[reference] != nil, "\(line.message): journalctl -x shows @\(reference)@")
            }
            explained.insert(id)
        }
        #expect(explained.count == 9, "all kinds of entries that a session writes")
    }

    @Test mutating func `a failing first connect is reported at once, and then only at certain minutes`() {
        for attempt in 1...50 {
            change(to: .connecting, .waiting, attempt: attempt + 1, retryIn: 1, at: attempt - 1)
            change(to: .connecting, .dialing, attempt: attempt + 1, at: attempt)
        }
        #expect(
            told == [
                "main: not connected after 1 attempt: the endpoint refused the TCP connection, next attempt in 1.0 s"
            ])
    }

    @Test mutating func `a summary comes at its time, also between two attempts`() throws {
        change(to: .connected, at: 0)
        change(to: .reconnecting, .waiting, because: .serverClosed, attempt: 1, retryIn: 100_000, at: 10)
        var times: [Instant] = []
        for _ in 0..<5 {
            let due = try #require(log.nextDeadline)
            times.append(due)
            log.timeReached(at: due, status: status(.reconnecting, .waiting, .serverClosed, 1, 100_000, 10))
        }
        #expect(times == [1, 5, 15, 60, 120].map { Self.at(10 + 60 * $0) })
        #expect(told.count == 1 + 5)
        change(to: .connected, at: 8000)
        #expect(log.nextDeadline == nil, "nothing is summed up while connected")
    }

    @Test mutating func `an outage is one line when lost and one when back`() {
        change(to: .connected, at: 0)
        change(to: .reconnecting, .waiting, because: .serverClosed, attempt: 1, retryIn: 1, at: 10)
        for second in 11..<60 {
            change(to: .reconnecting, .dialing, attempt: second, at: second)
            change(to: .reconnecting, .waiting, attempt: second, retryIn: 1, at: second)
        }
        back(after: 60)
        #expect(
            told == [
                "main: lost: the server closed the connection without saying why",
                "main: connected again to mqtt://a:1883 after 60 s, quick reconnect",
            ])
        #expect(recorded.lines[0].level == .warning)
        #expect(recorded.lines[0].fields["MESSAGE_ID"] == MessageID.sessionLost.description)
        #expect(recorded.lines[1].fields["HOLDFAST_OUTAGE_USEC"] == "60000000")
    }

    @Test mutating func `a long outage is summed up after 1, 5, 15 and every 60 minutes`() {
        change(to: .connected, at: 0)
        change(to: .reconnecting, .waiting, because: .refused, attempt: 1, retryIn: 60, at: 0)
        var minutes: [Int] = []
        var lines = told.count
        for minute in 1...250 {
            change(to: .reconnecting, .waiting, attempt: minute + 1, retryIn: 60, at: minute * 60)
            if told.count > lines { minutes.append(minute) }
            lines = told.count
        }
        #expect(minutes == [1, 5, 15, 60, 120, 180, 240])
        #expect(told[2].hasPrefix("main: not connected after 5 attempts: "))
        #expect(recorded.lines[1].fields["MESSAGE_ID"] == MessageID.stillTrying.description)
    }

    @Test mutating func `nothing is logged while connected`() {
        change(to: .connected, at: 0)
        for second in 1...1000 {
            log.tell(
                .pathChanged(.movedSourceKept, EndpointIndex(0), from: nil, to: nil),
                status: status(.connected, nil, .refused, 0, nil, second), endpoint: nil, remedies: remedies,
                at: Self.at(second))
            change(to: .connected, at: second)
        }
        #expect(told == [])
    }

    @Test mutating func `a terminal reason is an error with a hint`() {
        change(to: .connecting, .authenticating, attempt: 1, at: 0)
        change(to: .failed, because: .displaced, at: 1)
        #expect(
            told == [
                "main: failed (displaced): another device took over this session's identity; "
                    + "give each device its own client-id (here edge-42); holdfastctl connect main takes the session back"
            ])
        #expect(recorded.lines[0].level == .error)
        #expect(recorded.lines[0].fields["HOLDFAST_REASON"] == "displaced")
    }

    @Test(arguments: [
        (Reason.Code.displaced, MessageID.displaced), (.yielded, .displaced),
        (.credentialRejected, .credentialRejected), (.notAuthorized, .credentialRejected),
        (.credentialExpired, .credentialRejected), (.banned, .failed), (.retryTimeout, .failed),
    ])
    mutating func `each failure has the matching explanation in the journal`(
        reason: Reason.Code, id: MessageID
    ) {
        change(to: .connecting, .authenticating, attempt: 1, at: 0)
        change(to: .failed, because: reason, at: 1)
        #expect(recorded.lines.map(\.fields["MESSAGE_ID"]) == [id.description])
    }

    @Test mutating func `rejected messages do not flood the journal`() {
        for number in 1...100 {
            log.quarantined(MessageSequence(rawValue: Int64(number)), "quota", at: Self.at(0))
            #expect((log.nextDeadline != nil) == (number > JournalPacer.burst))
        }
        #expect(log.nextDeadline == Self.at(60))
        let up = status(.connected, nil, .refused, 0, nil, 0)
        log.timeReached(at: Self.at(59), status: up)
        #expect(told.count == JournalPacer.burst)
        log.timeReached(at: Self.at(60), status: up)
        #expect(log.nextDeadline == nil)
        #expect(told.count == JournalPacer.burst + 1)
        #expect(told.last == "main: 95 more messages were quarantined within a minute")
    }

    @Test mutating func `a token renewed every few seconds is reported once, and again when it has expired`() {
        change(to: .connected, at: 0)
        for second in stride(from: 10, to: 100, by: 10) {
            log.tell(
                .credentialExpiring(at: Self.at(second + 2)),
                status: status(.connected, nil, .credentialRenewed, 0, nil, second), endpoint: nil, remedies: remedies,
                at: Self.at(second))
            change(to: .reconnecting, .waiting, because: .credentialRenewed, at: second)
            log.tell(
                .reconnectCompleted(.quick, outage: .milliseconds(10)),
                status: status(.connected, nil, .credentialRenewed, 0, nil, second), endpoint: "mqtt://a:1883",
                remedies: remedies, at: Self.at(second))
            change(to: .connected, because: .credentialRenewed, at: second)
        }
        #expect(
            told == [
                "main: the credential expires in 2.0 s and is being renewed",
                "main: connected again to mqtt://a:1883 after less than 0.1 s, quick reconnect",
            ])
        #expect(recorded.lines.count { $0.fields["MESSAGE_ID"] == MessageID.credentialExpiring.description } == 9)
        log.tell(
            .credentialExpiring(at: Self.at(200)), status: status(.connected, nil, .wake, 0, nil, 230), endpoint: nil,
            remedies: remedies, at: Self.at(230))
        #expect(told.last == "main: the credential expired 30 s ago and is being renewed")
    }

    @Test mutating func `a token that only a program can renew is not said to be renewed`() throws {
        var configuration = SessionConfiguration()
        configuration.clientID = "edge-42"
        var remedies = Remedies(session: try #require(SessionName("main")), configuration: configuration)
        remedies.hasToken = true
        log.tell(
            .credentialExpiring(at: Self.at(5)), status: status(.connected, nil, .credentialRenewed, 0, nil, 0),
            endpoint: nil, remedies: remedies, at: Self.at(0))
        #expect(
            told == [
                "main: the credential expires in 5.0 s: the program that supplied it must supply another one with "
                    + "session.renewToken"
            ])
    }

    @Test mutating func `what programs cause does not flood the journal`() throws {
        let consumer = try #require(ConsumerName("orders"))
        change(to: .connected, because: .autoconnect, at: 0)
        for number in 1...100 {
            log.filterReplaced(of: consumer, "a/\(number)", by: "b/\(number)", at: Self.at(0))
            log.publicationRefused("p/\(number)", .said(.notAuthorized), at: Self.at(0))
            log.presenceRefused(.said(.notAuthorized), at: Self.at(0))
            log.presenceKept("p", .said(.notAuthorized), at: Self.at(0))
            for state in [SessionStatus.Subscription.State.refused, .granted] {
                log.subscriptionChanged(
                    .init(filter: "f/\(number)", qos: .atLeastOnce, state: state, grantedQoS: .atMostOnce),
                    ofConsumers: [], at: Self.at(0))
            }
            log.inboxFull(number % 2 == 0, at: Self.at(0))
            change(to: .disconnected, because: .userDisconnect, at: 0)
            change(to: .connecting, .resolving, because: .userConnect, at: 0)
            change(to: .connected, because: .userConnect, at: 0)
        }
        #expect(told.count == 7 * JournalPacer.burst)
        log.timeReached(at: Self.at(60), status: status(.connected, nil, .userConnect, 0, nil, 60))
        #expect(told.count == 7 * (JournalPacer.burst + 1))
        #expect(
            told.contains(
                "main: 195 more changes that were asked for were made within a minute; it is connected now"))
        #expect(told.contains("main: 95 more changes of durable consumers' filters within a minute"))
        #expect(log.nextDeadline == nil)
    }

    @Test mutating func `unusable files are reported once`() {
        for _ in 1...3 { log.tlsFilesRejected(.init(.tlsFailed, "key.pem is empty")) }
        log.tlsFilesRejected(.init(.tlsFailed, "key.pem is gone"))
        for why in ["it refused", "there was no answer"] { log.addressesAvoided("[::1]:8883", because: why) }
        #expect(
            told == [
                "main: key.pem is empty; the previous ones stay in use",
                "main: key.pem is gone; the previous ones stay in use",
                "main: from now on, other addresses of that name are dialed before [::1]:8883: it refused",
            ])
    }

    @Test(arguments: [
        (0, "less than 0.1 s"), (300, "0.3 s"), (41_000, "41 s"), (119_000, "119 s"), (720_000, "12 min"),
        (10_800_000, "3 h"),
        (-5, "less than 0.1 s"),
    ])
    func `durations are written as people say them`(milliseconds: Int, text: String) {
        #expect(SessionLog.text(.milliseconds(milliseconds)) == text)
    }
}
