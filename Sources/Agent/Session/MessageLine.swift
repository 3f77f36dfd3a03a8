import ControlAPI
import NIOCore

/// A message for programs. Its line is written once, when the first one needs it.
final class MessageLine: Sendable {
    let message: ReceivedMessage
    private let written: NIOLoopBoundBox<SharedMessageLine?>

    init(_ message: ReceivedMessage, on eventLoop: any EventLoop) {
        self.message = message
        written = NIOLoopBoundBox(nil, eventLoop: eventLoop)
    }

    /// The line is longer than this.
    var leastLength: Int { written.value?.length ?? message.contentLength }

    func text(for subscription: SubscriptionID) -> [UInt8] {
        let line = written.value ?? SharedMessageLine(message)
        written.value = line
        return line.text(for: subscription)
    }
}
