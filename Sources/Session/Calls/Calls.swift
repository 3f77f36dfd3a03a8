/// The calls of programs that wait for something, by their ids.
package struct Calls: Sendable {
    package var keys = KeysUnderWay()
    /// Calls that decide about the messages of the outbox: one at a time, since each reads what the one before has
    /// committed.
    package var queueTurns = Turns()
    package var outcomeWaiters = OutcomeWaiters()

    package init() {}
}
