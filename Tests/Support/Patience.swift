/// How long a test waits before it gives up, counted only while the test itself runs. Each second is a separate sleep,
/// so that a busy machine gives the test, and the programs that it waits for, more time, and a stopped one takes none.
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
