import Foundation
import Glibc

/// A network namespace that a test made, by its name under /run/netns.
public struct Namespace: Hashable, Sendable {
    public let name: String
    /// The directory for the output of commands while they run.
    let scratch: String

    /// Makes a namespace with the loopback interface up and without IPv6, whose duplicate address detection takes
    /// seconds.
    package static func make(_ name: String, scratch: String) async throws -> Namespace {
        let namespace = Namespace(name: name, scratch: scratch)
        try await namespace.command(["ip", "netns", "add", name])
        try await namespace.command(
            namespace.inside([
                "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1",
            ]))
        try await namespace.ip("link set lo up")
        return namespace
    }

    /// Removes it, if it exists.
    package func remove() async {
        if access("/run/netns/\(name)", F_OK) == 0 { _ = try? await command(["ip", "netns", "del", name]) }
        try? FileManager.default.removeItem(atPath: "/etc/netns/\(name)")
    }

    /// Gives the programs that are started in the namespace from now on their own /etc/hosts. Writing it again changes
    /// it for running programs too.
    ///
    /// - Parameter lines: an address with its names each.
    public func hosts(_ lines: String...) throws {
        try configuration("hosts", lines)
    }

    /// Does the same with /etc/resolv.conf.
    public func resolver(_ lines: String...) throws {
        try configuration("resolv.conf", lines)
    }

    /// Does the same with /etc/group.
    public func groups(_ lines: [String]) throws {
        try configuration("group", lines)
    }

    private func configuration(_ file: String, _ lines: [String]) throws {
        let folder = "/etc/netns/\(name)"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        // In place: `ip netns exec` has mounted the file, not its name.
        try lines.map { $0 + "\n" }.joined().write(toFile: "\(folder)/\(file)", atomically: false, encoding: .utf8)
    }

    /// Returns the command that runs `words` in the namespace; the process keeps its id.
    public func inside(_ words: [String]) -> [String] { ["ip", "netns", "exec", name] + words }

    /// Runs `ip` with one or more lines of arguments.
    ///
    /// - Returns: what it printed.
    @discardableResult
    public func ip(_ lines: String...) async throws -> String {
        guard lines.count > 1 else { return try await command(["ip", "-n", name] + Self.words(lines.joined())) }
        return try await ip(lines)
    }

    /// Runs `ip` with many lines of arguments at once.
    @discardableResult
    public func ip(_ lines: [String]) async throws -> String {
        let file = "\(scratch)/\(UUID().uuidString).batch"
        try lines.map { $0 + "\n" }.joined().write(toFile: file, atomically: false, encoding: .utf8)
        defer { unlink(file) }
        return try await command(["ip", "-n", name, "-batch", file])
    }

    /// Loads nftables rules.
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
    package static let prefix = "hfe"

    /// Removes what a killed test process left behind: namespaces and directories with the id of a process that no
    /// longer exists. (The kernel has killed its programs.)
    static func sweep(scratch: String) async {
        for name in leftovers(in: "/run/netns") + leftovers(in: "/etc/netns") {
            await Namespace(name: name, scratch: scratch).remove()
        }
        for folder in [TemporaryDirectory.parent, TemporaryDirectory.diskParent] {
            for name in leftovers(in: folder) { TemporaryDirectory.remove("\(folder)/\(name)") }
        }
    }

    private static func leftovers(in directory: String) -> [String] {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []
        return names.filter { name in
            guard name.hasPrefix(prefix), let pid = pid_t(name.dropFirst(prefix.count).prefix { $0.isNumber }) else {
                return false
            }
            return kill(pid, 0) != 0 && errno == ESRCH
        }
    }
}

// MARK: Inside this process

extension Namespace {
    /// Moves the calling thread into the namespace; sockets that it makes from then on belong there.
    package func enter() throws {
        let file = open("/run/netns/\(name)", O_RDONLY | O_CLOEXEC)
        defer { close(file) }
        // setns(2), which glibc's headers declare for C programs only if _GNU_SOURCE is defined.
        guard file >= 0, let symbol = dlsym(nil, "setns"),
            unsafeBitCast(symbol, to: (@convention(c) (Int32, Int32) -> Int32).self)(file, 0x4000_0000) == 0
        else { throw Lab.Failure("\(name) cannot be entered: errno \(errno)") }
    }

    /// Adds a default route with a gateway, and returns the time just before that, in seconds since 1970. The kernel
    /// adds the route a few microseconds later.
    public func addDefaultRoute(via gateway: (UInt8, UInt8, UInt8, UInt8)) async throws -> Double {
        let namespace = self
        // nlmsghdr: 36 bytes, RTM_NEWROUTE, REQUEST | ACK | EXCL | CREATE; rtmsg: AF_INET, main, boot, universe, unicast;
        // RTA_GATEWAY.
        let message: [UInt8] = [
            36, 0, 0, 0, 24, 0, 5, 6, 1, 0, 0, 0, 0, 0, 0, 0,
            2, 0, 0, 0, 254, 3, 0, 1, 0, 0, 0, 0,
            8, 0, 5, 0, gateway.0, gateway.1, gateway.2, gateway.3,
        ]
        return try await onThread {
            try namespace.enter()
            let kernel = socket(AF_NETLINK, Int32(SOCK_RAW.rawValue | SOCK_CLOEXEC.rawValue), 0)
            defer { close(kernel) }
            var time = timespec()
            clock_gettime(CLOCK_REALTIME, &time)
            let sent = send(kernel, message, message.count, 0)
            // NLMSG_ERROR: 16 bytes of header, then the error, 0 for none.
            var answer = [UInt8](repeating: 0, count: 1024)
            let length = recv(kernel, &answer, answer.count, 0)
            guard sent == message.count, length >= 20, answer[16..<20].allSatisfy({ $0 == 0 }) else {
                throw Lab.Failure("the kernel refused the route: \(answer.prefix(max(length, 0)))")
            }
            return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
        }
    }
}

/// Runs blocking work on its own thread: Swift's pool has only a few.
public func onThread<Value: Sendable>(_ work: @escaping @Sendable () throws -> Value) async throws -> Value {
    try await withCheckedThrowingContinuation { continuation in
        Thread.detachNewThread { continuation.resume(with: Result { try work() }) }
    }
}
