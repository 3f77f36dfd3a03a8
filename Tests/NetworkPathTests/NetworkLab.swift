import Glibc
import NIOCore
import NIOPosix
import NetworkPath
import SessionCore
import Support
import Synchronization
import Testing
import Vocabulary

/// Two network namespaces of their own, and the watcher in one of them.
///
/// The watcher's event loop thread enters the namespace before anything is opened: sockets stay in the namespace of the
/// thread that opened them.
struct NetworkLab: Sendable {
    /// Whether namespaces can be made. With `HOLDFAST_REQUIRE_ALL=1` the tests run, and fail, where they cannot.
    static let isAvailable = geteuid() == 0 || LabRequirements.isAllRequired

    let host: Namespace
    let far: Namespace
    private let directory: TemporaryDirectory
    private let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)

    enum Failure: Error {
        case send(errno: Int32)
        case noChange
    }

    /// Runs `body` in a lab with the topology at the head of `NetworkWatcherTests.swift`, and cleans up.
    static func run(_ body: (NetworkLab) async throws -> Void) async throws {
        let lab = try await NetworkLab()
        let outcome: Result<Void, any Error>
        do {
            try await lab.build()
            outcome = .success(try await body(lab))
        } catch {
            outcome = .failure(error)
        }
        await lab.remove()
        try outcome.get()
    }

    private static let numbers = Atomic<Int>(0)

    private init() async throws {
        directory = try TemporaryDirectory()
        let name = "\(Namespace.prefix)\(getpid())n\(Self.numbers.add(1, ordering: .relaxed).newValue)"
        // A new link is announced before duplicate address detection is over: without IPv6, the tests have one cause.
        host = try await .make(name + "h", scratch: directory.path)
        far = try await .make(name + "f", scratch: directory.path)
    }

    private func build() async throws {
        try await host.ip(
            "link add up0 type veth peer name far0 netns \(far.name)",
            "link add up1 type veth peer name far1 netns \(far.name)")
        try await far.ip(
            "link add br0 type bridge", "link set br0 up", "link set far0 master br0 up", "link set far1 master br0 up",
            "addr add 10.9.0.254/24 dev br0", "addr add 10.9.1.254/24 dev br0")
        try await host.ip(
            "addr add 10.9.0.1/24 dev up0", "addr add 10.9.1.1/24 dev up1", "link set up0 up", "link set up1 up",
            "route add default via 10.9.0.254")
        // The carrier is announced a moment after the link is set up.
        for link in ["up0", "up1"] {
            try await until("\(link) is up") { try await host.ip("link show \(link)").contains("state UP") }
        }
        try await group.next().submit { [host] in try host.enter() }.get()
    }

    private func remove() async {
        await host.remove()
        await far.remove()
        directory.remove()
        try? await group.shutdownGracefully()
    }

    /// A started watcher in the host's namespace and what it reports.
    func watcher(
        targets: [Target: [IPAddress]], receiveBuffer: Int32 = 1 << 20,
        now: @escaping @Sendable () -> Instant = { BootClock.now() }
    ) async throws -> (NetworkWatcher, Changes, [Target: Path?]) {
        let (stream, continuation) = AsyncStream.makeStream(of: PathChange.self)
        let watcher = NetworkWatcher(
            eventLoop: group.next(), now: now, receiveBuffer: receiveBuffer,
            pathChanged: { continuation.yield($0) })
        try await watcher.start()
        var paths: [Target: Path?] = [:]
        for (target, addresses) in targets.sorted(by: { $0.key < $1.key }) {
            paths.updateValue(await watcher.setTarget(target, addresses: addresses), forKey: target)
        }
        return (watcher, Changes(iterator: stream.makeAsyncIterator()), paths)
    }

    /// A slow clock, so that a path that comes back is within the hold on a busy machine as well.
    static func slowClock() -> @Sendable () -> Instant {
        let begin = BootClock.now()
        return { begin.advanced(by: begin.duration(to: BootClock.now()) / 30) }
    }

    /// Starts a watcher, and stops it as soon as it waits for something.
    func startAndStop() async throws -> Task<Void, any Error> {
        let loop = group.next()
        let watcher = NetworkWatcher(eventLoop: loop, pathChanged: { _ in })
        return try await loop.submit {
            watcher.assumeIsolated { watcher in
                let starting = Task { try await watcher.start() }
                Task { watcher.stop() }
                return starting
            }
        }.get()
    }

    /// The changes that a watcher reports, one after the other; the test's time limit ends a wait in vain.
    struct Changes {
        var iterator: AsyncStream<PathChange>.Iterator

        mutating func next() async throws -> PathChange {
            guard let change = await iterator.next(isolation: nil) else { throw Failure.noChange }
            return change
        }

        /// All changes up to the first whose new path is like that. The kernel takes routes and addresses away one by
        /// one, and a look may fall between.
        mutating func until(_ isWanted: (Path?) -> Bool) async throws -> [PathChange] {
            var changes = [try await next()]
            while let last = changes.last, !isWanted(last.to) {
                changes.append(try await next())
            }
            return changes
        }
    }

    /// Gives the host's namespace IPv6, which it does not have at first.
    func enableIPv6() async throws {
        try await host.run(["sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=0"])
    }

    /// Adds routes in one datagram to the kernel: it works on all of them within one call, so that nobody can read the
    /// messages as fast as they are made. In the middle is one that matters, to `endpoint` by `gateway`.
    func addRoutes(_ count: Int, to endpoint: [IPAddress], via gateway: String) async throws {
        guard let endpoint = endpoint.first, let gateway = IPAddress(gateway) else { throw Failure.noChange }
        var datagram: [UInt8] = []
        for number in 0..<count {
            let isReal = number == count / 2
            // nlmsghdr: 44 bytes, RTM_NEWROUTE, REQUEST | EXCL | CREATE; rtmsg: AF_INET, main, static, unicast.
            datagram += hex("2c000000 1800 0106 01000000 00000000  02") + [isReal ? 32 : 24]
            datagram += hex("00 00 fe 04 00 01 00000000  0800 0100")
            datagram += isReal ? endpoint.bytes : [172, UInt8(16 + number / 256), UInt8(number % 256), 0]
            datagram += hex("0800 0500") + gateway.bytes
        }
        let bytes = datagram
        try await group.next().submit {
            let kernel = socket(AF_NETLINK, Int32(SOCK_RAW.rawValue), 0)
            defer { close(kernel) }
            guard send(kernel, bytes, bytes.count, 0) == bytes.count else {
                throw Failure.send(errno: errno)
            }
        }.get()
    }

    /// The netlink sockets in the host's namespace that are not the kernel's own, by their ports.
    func netlinkPorts() async throws -> [UInt32] {
        try await group.next().submit {
            let file = open("/proc/thread-self/net/netlink", O_RDONLY | O_CLOEXEC)
            defer { close(file) }
            var bytes = [UInt8](repeating: 0, count: 65536)
            let count = read(file, &bytes, bytes.count)
            // sk Eth Pid Groups …; the kernel's own have 0 for the port.
            let rows = String(decoding: bytes.prefix(max(0, count)), as: UTF8.self).split(separator: "\n").dropFirst()
            let ports = rows.map { $0.split(separator: " ") }.filter { $0[1] == "0" }.compactMap { UInt32($0[2]) }
            return ports.filter { $0 != 0 }
        }.get()
    }

    /// Sends something to every netlink socket in the host's namespace, as one program to another.
    /// - Returns: the `errno` of each; 0 where it was taken.
    func sendToNetlinkSockets() async throws -> [Int32] {
        let ports = try await netlinkPorts()
        return try await group.next().submit {
            ports.map { Self.knock([UInt8](repeating: 0, count: 16), atNetlinkPort: $0) }
        }.get()
    }

    private static func knock(_ bytes: [UInt8], atNetlinkPort port: UInt32) -> Int32 {
        let sender = socket(AF_NETLINK, Int32(SOCK_RAW.rawValue), 0)
        defer { close(sender) }
        // struct sockaddr_nl: family, padding, port, groups.
        var address = [UInt32(AF_NETLINK), port, 0]
        let sent = address.withUnsafeMutableBytes { address in
            sendto(sender, bytes, bytes.count, 0, address.baseAddress?.assumingMemoryBound(to: sockaddr.self), 12)
        }
        return sent == bytes.count ? 0 : errno
    }
}
