/// How many messages went through a session since the daemon was started.
package struct MessageCounts: Hashable, Sendable {
    /// Accepted from programs: committed to disk.
    package var published: Int64 = 0
    package var received: Int64 = 0
    /// Accepted, then dropped because of the configuration or by a person.
    package var dropped: Int64 = 0
    /// Received from the server, but not delivered to programs.
    package var refused: Int64 = 0

    package init() {}
}
