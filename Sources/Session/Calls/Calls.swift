/// Who waits for what: programs' calls, by their ids.
package struct Calls: Sendable {
    package var keys = KeysUnderWay()
    /// Who decides about the messages of the outbox: one at a time, since each reads what the one before has committed.
    package var queueTurns = Turns()
    package var outcomeWaiters = OutcomeWaiters()

    package init() {}
}
