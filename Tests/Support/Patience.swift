/// How long a test waits before it gives up, in seconds in which it ran itself. Each second is slept separately, so
/// that a test on a machine that is too busy to run it, or the programs that it waits for, has more time, and on a
/// stopped machine loses none.
public enum Patience {
    /// Returns after the limit.
    public static func last(_ limit: Duration) async throws {
        var left = limit
        while left > .zero {
            try await Task.sleep(for: min(left, .seconds(1)))
            left -= .seconds(1)
        }
    }
}
