/// The connections that the host opens, with the kernel's time of each.
public struct LabCapture: Sendable {
    private let process: LabProcess

    /// Starts tcpdump, and returns when it listens.
    public init(_ lab: Lab, port: Int = 1883) async throws {
        // If it listened on one interface, it would end when that is set down.
        let process = try await lab.start(
            "tcpdump",
            [
                "tcpdump", "-tt", "-nn", "-l", "-Z", "root", "--immediate-mode", "-i", "any",
                "dst port \(port) and tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn",
            ], in: lab.host)
        self.process = process
        try await until("tcpdump listens") {
            guard await process.isRunning else { throw Lab.Failure("tcpdump ended: \(process.errors)") }
            return process.errors.contains("listening on any")
        }
    }

    /// When each SYN left, in seconds since 1970.
    public var connects: [Double] { connects { _ in true } }

    /// The same for those from one IPv4 address.
    public func connects(from address: String) -> [Double] { connects { $0.contains(" IP \(address).") } }

    private func connects(_ isWanted: (Substring) -> Bool) -> [Double] {
        // The last one may not be complete.
        process.output.split(separator: "\n", omittingEmptySubsequences: false).dropLast().filter(isWanted)
            .compactMap { $0.split(separator: " ").first.flatMap { Double($0) } }
    }
}
