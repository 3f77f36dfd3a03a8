import Dispatch
import Glibc
import NIOCore

/// Tells when the configuration of the host's resolver changes: its file has a different content.
///
/// DHCP clients write the same file again at every renewal, so its contents count, without comments. Nothing is polled.
actor ResolverWatch {
    private nonisolated let eventLoop: any EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { eventLoop.executor.asUnownedSerialExecutor() }

    private let path: String
    private let changed: @Sendable () -> Void
    private var last: String?
    private var source: (any DispatchSourceRead)?

    /// - Parameters:
    ///   - path: of the file; it need not be there.
    ///   - changed: called on the loop.
    init(path: String = "/etc/resolv.conf", eventLoop: any EventLoop, changed: @escaping @Sendable () -> Void) {
        self.path = path
        self.eventLoop = eventLoop
        self.changed = changed
    }

    /// Begins to watch, and returns whether that is possible. What the file says now is nothing new.
    func start() -> Bool {
        guard let news = FileNews(), news.watch(path) else { return false }
        last = Self.settings(of: path)
        let (path, queue) = (path, DispatchQueue(label: "holdfast.resolver"))
        let source = DispatchSource.makeReadSource(fileDescriptor: news.descriptor, queue: queue)
        source.setEventHandler { [weak self, source] in
            let isUsable = news.drain()
            // A link may lead elsewhere now.
            news.watch(path)
            let settings = Self.settings(of: path)
            Task.immediate { await self?.read(settings) }
            if !isUsable { source.cancel() }
        }
        // It keeps the descriptor open until nobody reads it any more.
        source.setCancelHandler { _ = news }
        source.activate()
        self.source = source
        return true
    }

    func stop() {
        source?.cancel()
        source = nil
    }

    private func read(_ settings: String?) {
        // A file that is gone is about to be replaced.
        guard source != nil, let settings, settings != last else { return }
        last = settings
        changed()
    }

    /// What the file says, without comments and empty lines; `nil` if it cannot be read, or is empty still.
    static func settings(of path: String) -> String? {
        let file = open(path, O_RDONLY | O_CLOEXEC)
        guard file >= 0 else { return nil }
        defer { close(file) }
        // The resolver itself reads only a few lines.
        let bytes = [UInt8](unsafeUninitializedCapacity: 65536) { buffer, count in
            count = max(0, Glibc.read(file, buffer.baseAddress, buffer.count))
        }
        let lines = bytes.split(separator: UInt8(ascii: "\n")).filter { line in
            let first = line.first { $0 != UInt8(ascii: " ") && $0 != UInt8(ascii: "\t") }
            return first != nil && first != UInt8(ascii: "#") && first != UInt8(ascii: ";")
        }
        return lines.isEmpty ? nil : lines.map { String(decoding: $0, as: UTF8.self) }.joined(separator: "\n")
    }
}
