/// The endpoints whose servers accept the session and then end the connection soon, or fall silent. An outage does not
/// begin there as long as another endpoint is left: a first endpoint like this would keep the session from a second one
/// that is well.
///
/// A leaf machine. It forgets everything when a connection was stable, and when no attempt elsewhere succeeds.
struct ShortStays: Hashable, Sendable {
    private var counts: [EndpointIndex: Int] = [:]
    private var avoided: Set<EndpointIndex> = []

    /// One short connection is an accident: a server that is restarted has it with all of its clients.
    static let limit = 2
    /// Another device that took over the session may be seen only at the server where it did so, and needs a while to
    /// show up there. By then the session has looked for it several times.
    static let limitForRival = 4
    /// The network may be silent, too, and would be at every endpoint.
    static let limitForSilence = 3

    mutating func forget() { self = ShortStays() }

    /// Notes that the server soon ended a connection.
    ///
    /// - Parameter limit: so many in a row are too many.
    mutating func ended(at endpoint: EndpointIndex, limit: Int) {
        counts[endpoint, default: 0] += 1
        if counts[endpoint, default: 0] >= limit { avoid(endpoint) }
    }

    /// Notes that the server cannot serve now.
    mutating func avoid(_ endpoint: EndpointIndex) { avoided.insert(endpoint) }

    func avoids(_ endpoint: EndpointIndex) -> Bool { avoided.contains(endpoint) }
}
