import Dispatch

/// Waits once for the kernel to report that the file of a socket may be gone from its path or, if it is gone, that there
/// may be room for another one. Nothing is polled.
struct SocketWatch: ~Copyable {
    enum Expectation {
        /// The file is there; what happens to other files in its directory is not reported.
        case removal
        /// Something else is there, or the directory is gone or cannot be written to.
        case room
    }

    private let source: any DispatchSourceRead

    /// Returns `nil` when that cannot be watched; `errno` says why.
    ///
    /// - Parameter changed: called once, on another thread.
    init?(_ path: String, for expectation: Expectation, changed: @escaping @Sendable () -> Void) {
        guard let news = FileNews() else { return nil }
        switch expectation {
        case .removal: guard news.watchRemoval(of: path) else { return nil }
        case .room: guard news.watchRoom(for: path) else { return nil }
        }
        source = news.source("holdfast.socket")
        source.setEventHandler { [source] in
            source.cancel()
            changed()
        }
        source.activate()
    }

    deinit {
        source.cancel()
    }
}
