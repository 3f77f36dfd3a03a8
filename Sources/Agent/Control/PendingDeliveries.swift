import MQTT
import NIOCore

/// The publishes whose callers wait for the delivery, by the number of the call.
struct PendingDeliveries {
    private struct Delivery {
        /// Ends the caller's time.
        var timer: Scheduled<Void>?
        /// Once the message is accepted.
        var sequence: MessageSequence?
        /// The caller's time is over.
        var isLate = false
    }

    private var deliveries: [Int: Delivery] = [:]

    mutating func add(_ call: Int, timer: Scheduled<Void>?) {
        deliveries[call] = Delivery(timer: timer)
    }

    /// The message of a call is accepted.
    ///
    /// - Returns: whether its time is over, so that the call ends now; `nil` if its delivery is not waited for.
    mutating func accepted(_ call: Int, as sequence: MessageSequence) -> Bool? {
        guard let delivery = deliveries[call] else { return nil }
        if delivery.isLate {
            deliveries[call] = nil
        } else {
            deliveries[call]?.sequence = sequence
        }
        return delivery.isLate
    }

    /// A caller's time is over. It is always told that the message is accepted, so an answer waits for the disk.
    ///
    /// - Returns: the message, if it is accepted: then the call ends now.
    mutating func timedOut(_ call: Int) -> MessageSequence? {
        guard let sequence = deliveries[call]?.sequence else {
            deliveries[call]?.isLate = true
            return nil
        }
        deliveries[call] = nil
        return sequence
    }

    /// The message of a call is delivered or refused.
    ///
    /// - Returns: whether it had been accepted; `nil` if the call was answered when its time was over.
    mutating func ended(_ call: Int) -> Bool? {
        guard let delivery = deliveries.removeValue(forKey: call) else { return nil }
        delivery.timer?.cancel()
        return delivery.sequence != nil
    }

    mutating func removeAll() {
        for delivery in deliveries.values { delivery.timer?.cancel() }
        deliveries = [:]
    }
}
