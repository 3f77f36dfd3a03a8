/// Why bytes from the peer are not a packet. The connection cannot continue: send DISCONNECT with the reason code, then
/// close. A ``Publish/flaw`` only concerns the content of one message, and the connection continues.
public struct MalformedPacket: Error, Hashable, Sendable {
    /// What the DISCONNECT should say (4.13): usually 0x81 or 0x82; 0x84, 0x94 and 0x95 where the standard demands
    /// them.
    public let reasonCode: ReasonCode
    /// One sentence without the final full stop, naming packet, field and section of the standard.
    public let message: String
    /// Which packet it is; `nil` if there is no such packet.
    public let kind: Packet.Kind?
}

extension MalformedPacket: CustomStringConvertible {
    public var description: String { "\(message): \(reasonCode)" }
}
