import Dispatch
import NIOCore
import Vocabulary

/// Reports when the configuration of the host's resolver changes, that is, when its file has different content.
///
/// DHCP clients write the same file again at every renewal, so only its content without comments counts. Nothing is
/// polled.
actor ResolverWatch {
    private nonisolated let eventLoop: any EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { eventLoop.executor.asUnownedSerialExecutor() }

    private let path: String
    private let changed: @Sendable () -> Void
    private var last: String?
    private var source: (any DispatchSourceRead)?

    /// - Parameters:
    ///   - path: the file, which need not exist.
    ///   - changed: called on the loop.
    init(path: String = "/etc/resolv.conf", eventLoop: any EventLoop, changed: @escaping @Sendable () -> Void) {
        self.path = path
        self.eventLoop = eventLoop
        self.changed = changed
    }

    /// Starts watching, and returns whether that is possible. The present content of the file is not reported.
    func start() -> Bool {
        guard let news = FileNews(), news.watch(path) else { return false }
        last = Self.settings(of: path)
        let (path, source) = (path, news.source("holdfast.resolver"))
        source.setEventHandler { [weak self, source] in
            let isUsable = news.drain()
            news.watch(path)
            let settings = Self.settings(of: path)
            Task.immediate { await self?.read(settings) }
            if !isUsable { source.cancel() }
        }
        source.activate()
        self.source = source
        return true
    }

    func stop() {
        source?.cancel()
        source = nil
    }

    private func read(_ settings: String?) {
        // A file that is missing or empty is about to be replaced.
        guard source != nil, let settings, settings != last else { return }
        last = settings
        changed()
    }

    /// Returns the content of the file without comments and empty lines; `nil` if nothing is left or it cannot be read.
    static func settings(of path: String) -> String? {
        // The resolver itself reads only a few lines.
        guard let bytes = try? fileContents(path, atMost: 64 << 10) else { return nil }
        let lines = bytes.split(separator: UInt8(ascii: "\n")).filter { line in
            let first = line.first { $0 != UInt8(ascii: " ") && $0 != UInt8(ascii: "\t") }
            return first != nil && first != UInt8(ascii: "#") && first != UInt8(ascii: ";")
        }
        return lines.isEmpty ? nil : lines.map { String(decoding: $0, as: UTF8.self) }.joined(separator: "\n")
    }
}
