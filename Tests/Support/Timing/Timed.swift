import Glibc
public import Testing

/// Notes how long each test without arguments takes, in the file that HOLDFAST_TEST_TIMES names: `scripts/test` does, for
/// its list of the slowest. The events of a run say that such a test starts when it still waits for its turn.
public struct Timed: SuiteTrait, TestTrait, TestScoping {
    private static let file = getenv("HOLDFAST_TEST_TIMES").map { String(cString: $0) }

    public var isRecursive: Bool { true }

    @concurrent public func provideScope(
        for test: Test, testCase: Test.Case?, performing function: @concurrent @Sendable () async throws -> Void
    ) async throws {
        guard let file = Self.file, !test.isParameterized else { return try await function() }
        let start = ContinuousClock.now
        let result: Result<Void, any Error>
        do {
            result = .success(try await function())
        } catch {
            result = .failure(error)
        }
        let duration = start.duration(to: .now)
        // One write at the end of the file: other tests write there, too.
        let line = Array(
            "\(duration / .seconds(1))\t\(test.sourceLocation.moduleName)\t\(test.displayName ?? test.name)\n".utf8)
        let descriptor = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
        if descriptor >= 0 {
            _ = write(descriptor, line, line.count)
            close(descriptor)
        }
        try result.get()
    }
}

extension Trait where Self == Timed {
    /// The test is in the list of the slowest when it is one of them.
    public static var timed: Self { Timed() }
}
