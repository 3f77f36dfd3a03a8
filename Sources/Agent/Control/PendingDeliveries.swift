import MQTT
import NIOCore
import SessionCore

/// The publishes whose callers wait for the delivery, by the numbers of the calls.
struct PendingDeliveries {
    /// An accepted message.
    struct Message: Hashable {
        var session: SessionName
        var sequence: MessageSequence
        /// Whether an earlier call with the same key has published it.
        var isRepeated = false
    }

    private struct Delivery {
        var call: RunningCall
        var session: SessionName
        /// Ends the caller's wait.
        var timer: Scheduled<Void>?
        /// Set once it is accepted.
        var message: Message?
        /// Whether the caller's time is up.
        var isLate = false
    }

    private var deliveries: [Int: Delivery] = [:]

    mutating func add(_ call: RunningCall, to session: SessionName, timer: Scheduled<Void>?) {
        deliveries[call.number] = Delivery(call: call, session: session, timer: timer)
    }

    /// The message of a call is accepted.
    ///
    /// - Returns: the message, and whether the caller's time is up, so that the call ends now; `nil` if nothing waits for
    ///   its delivery.
    mutating func accepted(
        _ call: Int, as sequence: MessageSequence, isRepeated: Bool
    ) -> (message: Message, isLate: Bool)? {
        guard let delivery = deliveries[call] else { return nil }
        let message = Message(session: delivery.session, sequence: sequence, isRepeated: isRepeated)
        if delivery.isLate {
            deliveries[call] = nil
        } else {
            deliveries[call]?.message = message
        }
        return (message, delivery.isLate)
    }

    /// The caller's time is up. The caller is always told that its message is accepted, so the answer has to wait for
    /// the disk.
    ///
    /// - Returns: the message, if it is accepted: then the call ends now.
    mutating func timedOut(_ call: Int) -> Message? {
        guard let message = deliveries[call]?.message else {
            deliveries[call]?.isLate = true
            return nil
        }
        deliveries[call] = nil
        return message
    }

    /// The message of a call is delivered or refused.
    ///
    /// - Returns: whether it had been accepted; `nil` if the call was answered when its time was up.
    mutating func ended(_ call: Int) -> Bool? {
        guard let delivery = deliveries.removeValue(forKey: call) else { return nil }
        delivery.timer?.cancel()
        return delivery.message != nil
    }

    /// Ends the waits of all callers.
    ///
    /// - Returns: the calls whose messages are accepted.
    mutating func takeAll() -> [(call: RunningCall, message: Message)] {
        defer { deliveries = [:] }
        for delivery in deliveries.values { delivery.timer?.cancel() }
        return deliveries.sorted { $0.key < $1.key }.compactMap { _, delivery in
            delivery.message.map { (delivery.call, $0) }
        }
    }
}
