extension Actor {
    /// Looks at, or changes, an actor on the loop that this is called on. In a scenario, all actors are on one loop, so
    /// nothing has to wait. Unlike `assumeIsolated`, it can be called from asynchronous functions.
    nonisolated func here<Result: Sendable>(_ body: (isolated Self) throws -> Result) rethrows -> Result {
        try assumeIsolated(body)
    }
}
