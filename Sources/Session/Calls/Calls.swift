/// The programs' calls that are waiting for something, by their ids.
package struct Calls: Sendable {
    package var keys = KeysUnderWay()
    /// Calls that decide about messages in the outbox: one at a time, since each reads what the one before it has
    /// committed.
    package var queueTurns = Turns<CallID>()
    package var outcomeWaiters = OutcomeWaiters()

    package init() {}
}
