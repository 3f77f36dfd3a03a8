extension Actor {
    /// Looks at, or changes, an actor that lives on the loop on which this is called: in a scenario, all of them do, and
    /// nobody has to wait for anybody. Unlike `assumeIsolated` it can be called where one may wait.
    nonisolated func here<Result: Sendable>(_ body: (isolated Self) throws -> Result) rethrows -> Result {
        try assumeIsolated(body)
    }
}
