import Foundation
import Glibc

/// A network namespace that a test made, by its name under /run/netns.
public struct Namespace: Hashable, Sendable {
    public let name: String
    /// Where the output of the commands goes while they run.
    let scratch: String

    /// Makes one with the loopback interface up and without IPv6, whose duplicate address detection takes seconds.
    static func make(_ name: String, scratch: String) async throws -> Namespace {
        let namespace = Namespace(name: name, scratch: scratch)
        try await namespace.command(["ip", "netns", "add", name])
        try await namespace.command(
            namespace.inside([
                "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1",
            ]))
        try await namespace.ip("link set lo up")
        return namespace
    }

    func remove() async {
        _ = try? await command(["ip", "netns", "del", name])
    }

    /// The command that runs `words` in the namespace; the process keeps its id.
    public func inside(_ words: [String]) -> [String] { ["ip", "netns", "exec", name] + words }

    /// Runs `ip` with one or more lines of arguments.
    ///
    /// - Returns: what it printed.
    @discardableResult
    public func ip(_ lines: String...) async throws -> String {
        guard lines.count > 1 else { return try await command(["ip", "-n", name] + Self.words(lines.joined())) }
        let file = "\(scratch)/\(UUID().uuidString).batch"
        try lines.map { $0 + "\n" }.joined().write(toFile: file, atomically: false, encoding: .utf8)
        defer { unlink(file) }
        return try await command(["ip", "-n", name, "-batch", file])
    }

    /// Loads rules of nftables.
    public func nft(_ rules: String) async throws {
        try await run(["nft", rules])
    }

    /// Runs a program in the namespace to its end.
    @discardableResult
    public func run(_ words: [String]) async throws -> String {
        try await command(inside(words))
    }

    @discardableResult
    private func command(_ words: [String]) async throws -> String {
        try await LabProcess.run(words, files: "\(scratch)/\(UUID().uuidString)")
    }

    private static func words(_ line: String) -> [String] { line.split(separator: " ").map(String.init) }
}

extension Namespace {
    static let prefix = "hfe"

    /// Removes what a test process left that was killed: namespaces with the number of a process that is no more.
    static func sweep(scratch: String) async {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: "/run/netns")) ?? []
        for name in names where name.hasPrefix(prefix) {
            let number = name.dropFirst(prefix.count).prefix { $0.isNumber }
            guard let pid = pid_t(number), kill(pid, 0) != 0, errno == ESRCH else { continue }
            await Namespace(name: name, scratch: scratch).remove()
        }
    }
}
