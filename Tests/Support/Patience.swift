/// How long a test waits before it gives up, in seconds in which it ran itself: each is slept by itself, so that a machine
/// that is too busy to run the test, and so the programs that it waits for, has more time, and a stopped one all of it.
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
