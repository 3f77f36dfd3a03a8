import ControlAPI
import Testing

@testable import Agent

/// The wording is that of the service's manual.
struct StatusLineTests {
    private static let since = Timestamp(rawValue: 1_000_000)

    private static func session(
        _ state: SessionState, name: String = "main", reason: String? = nil, phase: Phase? = nil,
        attempt: Int = 0, retryIn: Double? = nil, endpoint: String? = nil, interface: String? = nil, rtt: Double? = nil
    ) -> SessionStatus {
        var status = SessionStatus(session: name, state: state, since: since)
        status.reason = reason.map { .init(code: $0, group: "", terminal: false, message: "") }
        status.phase = phase
        status.attempt = attempt
        status.retryIn = retryIn
        status.endpoint = endpoint
        status.path = interface.map { .init(interface: $0, type: "wifi", source: "192.0.2.1", gateway: nil) }
        status.rtt = rtt
        return status
    }

    private static func text(_ session: SessionStatus?, seconds: Int64 = 0) -> String {
        StatusLine.text(session, at: Timestamp(rawValue: 1_000_000 + seconds * 1000))
    }

    @Test(arguments: [
        (0, "less than a minute"), (59, "less than a minute"), (60, "1min"), (3599, "59min"), (10_800, "3h"),
        (172_799, "47h"), (172_800, "2d"), (-5, "less than a minute"),
    ])
    func `one connected session shows where, how and for how long`(seconds: Int64, duration: String) {
        let session = Self.session(
            .connected, reason: "autoconnect", endpoint: "mqtts://broker.example:8883", interface: "wlan0", rtt: 0.023)
        #expect(
            Self.text(session, seconds: seconds)
                == "main: connected to broker.example via wlan0 for \(duration), RTT 23 ms")
    }

    @Test(
        arguments: [
            (0.02, nil, 0.02), (0.02, 0.015, 0.015), (0.02, 0.04, 0.04), (0.02, 0.01, 0.01), (0.02, 0.041, 0.02),
            (0.02, 0.009, 0.02), (nil, 0.02, nil),
        ] as [(Double?, Double?, Double?)])
    func `an RTT that is shown stays until another differs much`(rtt: Double?, shown: Double?, expected: Double?) {
        #expect(StatusLine.steadyRTT(rtt, shown: shown) == expected)
    }

    @Test(arguments: [
        (
            Self.session(.connecting, reason: "tls-timeout", phase: .waiting, attempt: 7, retryIn: 11.2),
            "main: retry 7 in 12 s after tls-timeout"
        ),
        (Self.session(.reconnecting, reason: "no-path", phase: .waitingForNetwork), "main: no network"),
        (
            Self.session(.connecting, reason: "refused", phase: .dialing, attempt: 2),
            "main: connecting, attempt 2 dialing after refused"
        ),
        (Self.session(.failed, reason: "displaced"), "main: failed (displaced)"),
        (Self.session(.disconnected, reason: "user-disconnect"), "main: disconnected (user-disconnect)"),
        (
            Self.session(.connected, endpoint: "mqtt://[2001:db8::1]:1883", rtt: 0.0004),
            "main: connected to [2001:db8::1] for less than a minute, RTT 0.4 ms"
        ),
    ])
    func `one session shows what it is doing`(session: SessionStatus, text: String) {
        #expect(Self.text(session) == text)
    }

    private static func sessions(
        _ numbers: ClosedRange<Int>, _ state: SessionState, _ reason: String?
    ) -> [StatusLine.Brief] {
        numbers.map { .init(session: "s\($0)", state: state, reason: reason) }
    }

    @Test func `several sessions are counted, and those that are not connected named`() {
        let sessions =
            Self.sessions(1...4, .connected, "autoconnect") + Self.sessions(5...5, .reconnecting, "dns-failed")
        #expect(
            StatusLine.text(sessions, isRefusing: false)
                == "5 sessions: 4 connected, 1 reconnecting (s5: dns-failed)")
    }

    @Test func `at most three names are listed for a state, the first by name`() {
        #expect(
            StatusLine.text(Self.sessions(1...5, .failed, "banned").reversed(), isRefusing: false)
                == "5 sessions: 5 failed (s1: banned, s2: banned, s3: banned, …)")
    }

    @Test func `a store that takes no messages is mentioned once`() {
        var session = Self.session(.failed, name: "s", reason: "banned")
        session.storeFailure = "no room"
        #expect(Self.text(session) == "s: failed (banned); published messages cannot be stored")
        #expect(
            StatusLine.text(Self.sessions(1...2, .failed, nil), isRefusing: true)
                == "2 sessions: 2 failed (s1, s2); published messages cannot be stored")
    }

    @Test func `no sessions is a sentence of its own`() {
        #expect(Self.text(nil) == "no sessions are configured")
    }
}
