// Importing this module also imports the words that all modules share.
@_exported public import Vocabulary

/// The number of an attempt and of the connection that it becomes. It never repeats within a machine, which makes late
/// completions of an abandoned attempt harmless.
public struct Generation: Hashable, Sendable, Comparable {
    public var rawValue: UInt64

    public init(rawValue: UInt64) {
        self.rawValue = rawValue
    }

    public static func < (left: Generation, right: Generation) -> Bool { left.rawValue < right.rawValue }
}

/// The position of an endpoint in the session's list.
public struct EndpointIndex: Hashable, Sendable, Comparable {
    public var rawValue: Int

    public init(_ rawValue: Int) {
        self.rawValue = rawValue
    }

    public static func < (left: EndpointIndex, right: EndpointIndex) -> Bool { left.rawValue < right.rawValue }
}

/// One attempt to get a connection up, from resolving the name to restored.
public struct Attempt: Hashable, Sendable {
    public var generation: Generation
    public var endpoint: EndpointIndex
    /// Counts from 1 since the session was lost or was told to connect.
    public var number: Int
    /// Whether the server must discard any session it has.
    public var discardsSession: Bool
    /// Whether it must discard an older copy of the session, from before the session continued elsewhere.
    public var discardsOlderCopy = false
    /// What to find out before CONNECT.
    public var look: Look?
    /// Whether what ended last was a connection that the server had accepted, and then closed without giving a reason:
    /// another device that took over may still be about to announce itself.
    public var followsSuddenClose = false
    /// Whether to continue on the connection of a knock that was answered.
    public var continuesKnock = false
    /// What the server said about the last credential: the attempt needs another one, and ends with this reason if
    /// there is none.
    public var rejection: Reason?
}
