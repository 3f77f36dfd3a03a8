import ControlAPI
import Glibc
import HoldfastClient

/// Answers every message of a topic, and loses none, whichever program is restarted: `echo-client SESSION`
///
/// It takes SESSION's `orders/#` as the durable consumer "echo", and publishes each payload, with its properties, to `replies/…`.
/// An order whose answer cannot be published, for example because its topic would be too long, is reported and left.
@main enum Echo {
    static func main() async {
        guard let session = CommandLine.arguments.dropFirst().first else {
            say("usage: echo-client SESSION", to: STDERR_FILENO)
            exit(2)
        }
        // What is not acknowledged comes again, so it may end at any moment.
        signal(SIGINT) { _ in _exit(0) }
        do {
            try await echo(session)
        } catch {
            say("echo-client: \(error)", to: STDERR_FILENO)
            exit(1)
        }
    }

    private static func echo(_ session: String) async throws {
        let holdfast = HoldfastClient()
        let status = try await holdfast.call(SessionStatusMethod.self, .init(session: session))
        say("\(session) is \(status.state.rawValue)")
        for try await order in try await holdfast.consume(session: session, filter: "orders/#", consumer: "echo") {
            let topic = order.message.topic
            var outcome = "is no order"
            // The filter also matches the topic "orders". Bytes, because a character may go on after the slash.
            if topic.utf8.starts(with: "orders/".utf8) {
                let reply = MessagePublishMethod.Parameters(
                    session: session, topic: "replies/" + Substring(topic.utf8.dropFirst("orders/".utf8.count)),
                    payload: order.message.payload, properties: order.message.properties)
                do throws(ClientError) {
                    let answer = try await holdfast.publish(reply, timeout: .seconds(3600))
                    outcome = "is answered as message \(answer.id)"
                } catch {
                    guard isDueToMessage(error) else { throw error }
                    say("echo-client: \(topic.prefix(100)) is not answered: \(error)", to: STDERR_FILENO)
                    outcome = "is not answered"
                }
            }
            try await order.ack()
            say("\(topic.prefix(100)) \(order.message.payload.text ?? "") \(outcome)")
        }
    }

    /// Whether it is due to the message itself, which would be refused each time.
    private static func isDueToMessage(_ error: ClientError) -> Bool {
        switch error {
        case .requestTooLong: true
        case .refused(let error): [.invalidTopic, .invalidParameters, .messageRejected].contains(error.known)
        default: false
        }
    }

    /// Writes a line at once, also into a file.
    private static func say(_ line: String, to descriptor: CInt = STDOUT_FILENO) {
        let bytes = Array("\(line)\n".utf8)
        _ = write(descriptor, bytes, bytes.count)
    }
}
