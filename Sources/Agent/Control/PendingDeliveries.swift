import MQTT
import NIOCore

/// The publishes whose callers wait for the delivery, by the numbers of the calls.
struct PendingDeliveries {
    private struct Delivery {
        /// Ends the caller's wait.
        var timer: Scheduled<Void>?
        /// Set once the message is accepted.
        var sequence: MessageSequence?
        /// Whether the caller's time is up.
        var isLate = false
    }

    private var deliveries: [Int: Delivery] = [:]

    mutating func add(_ call: Int, timer: Scheduled<Void>?) {
        deliveries[call] = Delivery(timer: timer)
    }

    /// The message of a call is accepted.
    ///
    /// - Returns: whether the caller's time is up, so that the call ends now; `nil` if nothing waits for its delivery.
    mutating func accepted(_ call: Int, as sequence: MessageSequence) -> Bool? {
        guard let delivery = deliveries[call] else { return nil }
        if delivery.isLate {
            deliveries[call] = nil
        } else {
            deliveries[call]?.sequence = sequence
        }
        return delivery.isLate
    }

    /// The caller's time is up. The caller is always told that its message is accepted, so the answer has to wait for
    /// the disk.
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
    /// - Returns: whether it had been accepted; `nil` if the call was answered when its time was up.
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
