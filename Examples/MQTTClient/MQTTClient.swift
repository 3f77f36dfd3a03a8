import MQTT
import NIOCore
import NIOPosix

/// `mqtt-client HOST PORT COUNT` subscribes to the topics that it publishes to, publishes COUNT messages of each QoS,
/// prints what comes back, and disconnects when everything has arrived. It connects again when the connection breaks or
/// the server is not there; the session continues where it was.
@main enum MQTTClient {
    static func main() async throws {
        let arguments = CommandLine.arguments
        guard arguments.count == 4, let port = Int(arguments[2]), let count = Int(arguments[3]), count > 0 else {
            fatalError("usage: mqtt-client HOST PORT COUNT")
        }
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let (session, expectation) = try await loop.submit {
            let messages = (1...count).flatMap { number in
                QoS.allCases.map { qos in
                    OutboundMessage(
                        topic: "example", payload: ByteBuffer(string: "\(number) of QoS \(qos.rawValue)"), qos: qos)
                }
            }
            let expectation = Expectation(of: messages)
            let session = Session(clientID: "example", happened: expectation.happened)
            try session.subscribe(Subscription(filter: "example", qos: .exactlyOnce))
            for message in messages { try session.publish(message) }
            return (NIOLoopBound(session, eventLoop: loop), NIOLoopBound(expectation, eventLoop: loop))
        }.get()
        while true {
            do {
                let channel = try await ClientBootstrap(group: loop)
                    .channelInitializer { channel in
                        channel.eventLoop.makeCompletedFuture {
                            try channel.pipeline.syncOperations.addHandler(session.value)
                        }
                    }
                    .connect(host: arguments[1], port: port).get()
                try await channel.closeFuture.get()
                if try await loop.submit({ expectation.value.isMet }).get() { return }
            } catch {
                print("\(error)")
            }
            try await Task.sleep(for: .milliseconds(100))
        }
    }
}

/// The messages that must come back. Those of QoS 0 may be lost, and those of QoS 1 may come twice.
final class Expectation {
    private var missing: Set<String>

    var isMet: Bool { missing.isEmpty }

    init(of messages: [OutboundMessage]) {
        missing = Set(messages.filter { $0.qos != .atMostOnce }.map { String(buffer: $0.payload) })
    }

    func happened(_ event: MQTTClientMachine.Event, _ session: Session) {
        switch event {
        case .connected(let connected): print("connected\(connected.resumed ? ", resumed" : "")")
        case .subscribed(let filter, let answer): print("subscribed \(filter): \(answer.words)")
        case .delivered(let sequence, let code): print("delivered \(sequence): \(code)")
        case .received(let message):
            let payload = String(buffer: message.payload)
            print("received \(payload)")
            missing.remove(payload)
        case .refused(let reason): print("refused: \(reason.code)")
        case .disconnectedByServer(let reason): print("disconnected: \(reason.code)")
        case .protocolViolation(_, let sentence, _), .stateMismatch(let sentence): print(sentence)
        default: break
        }
        // Everything has arrived, and everything has been acknowledged.
        if isMet, session.isIdle { session.handle(.disconnect(.normalDisconnection)) }
    }
}
