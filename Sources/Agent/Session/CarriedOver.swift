import ControlAPI
import MQTT
import Session
import SessionCore
import Transport

/// What outlives a restart of the session: the programs that subscribe to its messages or wait for the delivery of a
/// message, the credential that a program gave, what the session has been through, and how the clock was set.
struct CarriedOver: Sendable {
    var live = LiveConsumers()
    var attached: [ConsumerName: DurableConsumers.Attachment] = [:]
    var subscribers: [SubscriptionID: Subscriber] = [:]
    var publishers = Publishers()
    /// The credential that a program gave.
    var credential: SessionCredential?
    /// The last good TLS files, in case those that replace them are broken.
    var tls = LastTLSFiles()
    /// `nil` if the session was removed.
    var history: History?
    /// What shows how the wall clock is set until there is another driver; `nil` if there was none.
    var clock: ClockStepDetector?
    /// What the disk has not taken of what the session has decided, apart from the protocol's rows, and how the clock was
    /// set: what is stored has the times of the clock as it was.
    var unstored: [SessionChange] = []

    /// What the session has been through.
    struct History: Sendable {
        var counters: SessionMachine.Counters
        var messages: MessageCounts
        /// The outage that it was in when it was stopped.
        var outage: SessionMachine.Outage?
        /// Its presence, if the others in its room still see it.
        var standing: StandingPresence?
    }

    var isEmpty: Bool {
        live.isEmpty && attached.isEmpty && publishers.isEmpty && credential == nil && history == nil
    }

    /// Takes what is of no use when the session is removed from the configuration.
    ///
    /// - Returns: the subscribers, who are to be told.
    mutating func sessionRemoved() -> [Subscriber] {
        defer { (history, live, attached, subscribers) = (nil, LiveConsumers(), [:], [:]) }
        return Array(subscribers.values)
    }

    /// Answers publishers that wait for delivery, because no new driver follows soon: their messages are accepted, but
    /// not delivered yet.
    mutating func releasePublishers() {
        for (sequence, publisher) in publishers.takeAll() {
            publisher.end(.success(.accepted(sequence)))
        }
    }
}
