import Foundation
import Glibc

/// What the kernel says about links and routes, and what leaves the host, on one clock.
public struct LabCapture: Sendable {
    private let monitor: LabProcess
    private let capture: LabProcess

    /// Starts both, and returns when both listen.
    public init(_ lab: Lab, port: Int = 1883) async throws {
        let monitor = try await lab.start(
            "monitor", ["env", "TZ=UTC", "stdbuf", "-oL", "ip", "-ts", "monitor", "link", "route"], in: lab.host)
        // On one interface, tcpdump would end when that is set down.
        let capture = try await lab.start(
            "tcpdump",
            [
                "tcpdump", "-tt", "-nn", "-l", "-Z", "root", "--immediate-mode", "-i", "any",
                "dst port \(port) and tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn",
            ], in: lab.host)
        self.monitor = monitor
        self.capture = capture
        try await until("tcpdump listens") { capture.errors.contains("listening on any") }
        // The monitor does not say that it listens: it is told something until it hears.
        try await until("ip monitor listens") {
            try await lab.host.ip("route replace 192.0.2.1/32 dev lo")
            return monitor.output.contains("192.0.2.1")
        }
    }

    /// When the kernel told each of its news, in seconds since 1970, with the text.
    public var news: [(time: Double, text: String)] {
        monitor.output.split(separator: "\n").compactMap { line in
            // [2026-11-21T03:15:34.123456] default via 10.77.0.254 dev up0
            guard line.hasPrefix("["), let end = line.firstIndex(of: "]") else { return nil }
            let stamp = line[line.index(after: line.startIndex)..<end].split(separator: ".")
            var parts = tm()
            guard stamp.count == 2, strptime(String(stamp[0]), "%Y-%m-%dT%H:%M:%S", &parts) != nil,
                let micros = Double(stamp[1])
            else { return nil }
            return (Double(timegm(&parts)) + micros / 1e6, line[end...].dropFirst(2).description)
        }
    }

    /// When each SYN left, in seconds since 1970.
    public var connects: [Double] {
        capture.output.split(separator: "\n").compactMap { $0.split(separator: " ").first.flatMap { Double($0) } }
    }
}
