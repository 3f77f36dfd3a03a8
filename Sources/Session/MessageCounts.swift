/// How many messages have gone through a session since the daemon was started.
package struct MessageCounts: Hashable, Sendable {
    /// Accepted from programs: committed to disk.
    package var published: Int64 = 0
    package var received: Int64 = 0
    /// Dropped by a person, or because of the configuration, which may drop a message before it is accepted.
    package var dropped: Int64 = 0
    /// Received from the server, but not delivered to programs.
    package var refused: Int64 = 0

    package init() {}
}
