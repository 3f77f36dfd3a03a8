/// What a server may still hold of a session that continued at another server: the part that is needed to continue
/// there, as it was when the session left.
public struct LeftSession: Hashable, Sendable {
    /// Identifiers of our QoS 2 messages that the server owns. It may hold them back until they are released.
    public var unreleased: Set<PacketID>
    /// Identifiers of the server's QoS 2 messages that were taken and not released.
    public var inbound: Set<PacketID>
    /// Our subscriptions.
    public var filters: Set<TopicFilter>

    /// Without arguments, of a session of which nothing is known.
    public init(unreleased: Set<PacketID> = [], inbound: Set<PacketID> = [], filters: Set<TopicFilter> = []) {
        self.unreleased = unreleased
        self.inbound = inbound
        self.filters = filters
    }
}
