import MQTT
import Support

extension Packet {
    /// What is left of the packet in MQTT 3.1.1: no properties, no reason codes of acknowledgements and DISCONNECT, no
    /// subscription options but the QoS, and no password without a user name. `nil` if there is no such packet.
    var inThreeOneOne: Packet? {
        switch self {
        case .connect(var connect):
            connect.properties = .init()
            connect.will?.properties = .init()
            if connect.username == nil { connect.password = nil }
            return connect.clientID.isEmpty && !connect.cleanStart ? nil : .connect(connect)
        case .connack(let connack):
            return .connack(
                Connack(
                    sessionPresent: connack.sessionPresent, reasonCode: ReturnCode(connack.reasonCode).reasonCode))
        case .publish(var publish):
            publish.properties = .init()
            return publish.topic.isEmpty ? nil : .publish(publish)
        case .puback(let answer): return .puback(Acknowledgement(packetID: answer.packetID))
        case .pubrec(let answer): return .pubrec(Acknowledgement(packetID: answer.packetID))
        case .pubrel(let answer): return .pubrel(Acknowledgement(packetID: answer.packetID))
        case .pubcomp(let answer): return .pubcomp(Acknowledgement(packetID: answer.packetID))
        case .subscribe(let subscribe):
            return .subscribe(
                Subscribe(
                    packetID: subscribe.packetID,
                    subscriptions: subscribe.subscriptions.map { Subscription(filter: $0.filter, qos: $0.qos) }))
        case .suback(let suback):
            let codes = suback.reasonCodes.map { $0.isError ? .unspecifiedError : $0 }
            guard codes.allSatisfy(\.isReturnCodeOfSuback) else { return nil }
            return .suback(Suback(packetID: suback.packetID, reasonCodes: codes))
        case .unsubscribe(let unsubscribe):
            return .unsubscribe(Unsubscribe(packetID: unsubscribe.packetID, filters: unsubscribe.filters))
        case .unsuback(let unsuback): return .unsuback(Unsuback(packetID: unsuback.packetID, reasonCodes: []))
        case .disconnect: return .disconnect(Disconnect())
        case .pingreq, .pingresp: return self
        case .auth: return nil
        }
    }
}
