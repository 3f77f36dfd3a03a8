/// Whose path is watched: one endpoint of one session.
public struct Target: Hashable, Sendable {
    /// The session's name.
    public var session: String
    /// The endpoint's place in the session's list, from 0.
    public var endpoint: Int

    public init(session: String, endpoint: Int) {
        self.session = session
        self.endpoint = endpoint
    }
}

extension Target: Comparable {
    public static func < (left: Target, right: Target) -> Bool {
        (left.session, left.endpoint) < (right.session, right.endpoint)
    }
}
