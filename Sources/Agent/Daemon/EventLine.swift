import ControlAPI
import NIOCore

/// The line of an event for all who watch it: it is encoded once, when the first one needs it.
final class EventLine: Sendable {
    private let event: SessionEvent
    private let encoded: NIOLoopBoundBox<SharedEventLine?>

    init(_ event: SessionEvent, on eventLoop: any EventLoop) {
        self.event = event
        encoded = NIOLoopBoundBox(nil, eventLoop: eventLoop)
    }

    func text(for watch: WatchID) -> [UInt8]? {
        if encoded.value == nil { encoded.value = SharedEventLine(event) }
        return encoded.value?.text(for: watch)
    }
}
