import NIOCore

/// How many of a peer's unread bytes are notifications, by their places in what was written to it.
struct UnreadNotifications {
    /// How many bytes of all kinds were written so far.
    private var written = 0
    /// Where the unread notifications end in this, and their lengths.
    private var ends = CircularBuffer<(end: Int, bytes: Int)>(initialCapacity: 1)
    private(set) var bytes = 0

    mutating func wrote(_ count: Int, isNotification: Bool) {
        written += count
        guard isNotification else { return }
        ends.append((written, count))
        bytes += count
    }

    /// - Parameter unread: how many bytes of all kinds are unread now.
    mutating func read(unread: Int) {
        while let first = ends.first, first.end <= written - unread {
            bytes -= first.bytes
            ends.removeFirst()
        }
    }
}
