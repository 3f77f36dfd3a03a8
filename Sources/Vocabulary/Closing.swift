/// How we close a connection.
public enum Closing: Hashable, Sendable {
    /// Send what is pending, say goodbye (TLS close_notify, TCP FIN), wait for the peer to do the same, close; within a
    /// limit of time.
    case afterFlush
    /// Close now.
    case abort
}
