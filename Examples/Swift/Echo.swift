import ControlAPI
import Glibc
import HoldfastClient

/// Answers every message of a topic, and loses none, whichever program is restarted: `echo-client SESSION`
///
/// It takes SESSION's `orders/#` as the durable consumer "echo", and publishes each payload, with its properties, to `replies/…`.
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
            let topic = "replies/" + order.message.topic.dropFirst("orders/".count)
            let reply = MessagePublishMethod.Parameters(
                session: session, topic: topic, payload: order.message.payload, properties: order.message.properties)
            let answer = try await holdfast.publish(reply, timeout: .seconds(3600))
            try await order.ack()
            say("\(order.message.topic) \(order.message.payload.text ?? "") is answered as message \(answer.id)")
        }
    }

    /// Writes a line at once, also into a file.
    private static func say(_ line: String, to descriptor: CInt = STDOUT_FILENO) {
        let bytes = Array("\(line)\n".utf8)
        _ = write(descriptor, bytes, bytes.count)
    }
}
