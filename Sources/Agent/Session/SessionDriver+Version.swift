import Configuration
import MQTT
import Session
import SessionCore
import Transport

// With version = "auto": from one version of MQTT to the other, at the same server and at once.

extension SessionDriver {
    /// The server said that it does not speak the version; `nil` if that is the end of it.
    func versionRefused(_ server: MQTTClientMachine.ServerReason) -> SessionMachine.Ending? {
        guard server.code == .unsupportedProtocolVersion, let link,
            let other = session.servers.refused(session.mqtt.version, at: link.address)
        else { return nil }
        var ending = SessionMachine.Ending(
            Reason(
                .serverClosed, "the server does not speak MQTT \(session.mqtt.version), and MQTT \(other) is tried",
                serverCode: server.code.rawValue))
        ending.triesOtherWay = true
        return ending
    }

    /// The transport ended. After CONNECT and before CONNACK that may be a server's way to refuse the version; after
    /// refusals, to say that it has no room.
    func ending(_ end: ConnectionEnd, of link: Link) -> SessionMachine.Ending {
        var ending = SessionMachine.Ending(Reason(end))
        ending.isElsewhere = link.isRedirected
        guard ending.reason.code == .serverClosed || ending.reason.code == .reset else { return ending }
        ending.isByServer = true
        if let refusal = session.mqtt.reasonIfEnded { return .init(closedAfter: refusal) }
        if let finding = session.mqtt.findingIfEnded { return ending.considering(finding) }
        guard session.mqtt.isAwaitingConnack, let other = session.servers.closed(session.mqtt.version, at: link.address)
        else { return ending }
        ending.reason.message += "; it may not speak MQTT \(session.mqtt.version), and MQTT \(other) is tried"
        ending.triesOtherWay = true
        return ending
    }
}

extension MQTTVersion {
    /// `nil` when it is found out what a server speaks.
    var only: ProtocolVersion? {
        switch self {
        case .five: .five
        case .threeOneOne: .threeOneOne
        case .automatic: nil
        }
    }
}
