import Foundation

/// One run of a program with one mistake.
struct Trial {
    enum Outcome {
        case passed
        /// What went wrong, in one line.
        case failed(String)
    }

    /// What a trial may take before it counts as endless: the time of a processor, so that a busy machine is no reason.
    struct Limit {
        var processor: Double
        /// How long it may do nothing at all.
        var idle = 60.0
    }

    var outcome: Outcome
    /// The time of a processor, in seconds.
    var processor: Double

    /// - Parameters:
    ///   - sign: what a line of the output has when something is wrong; the program is ended then.
    static func run(
        _ program: URL, _ arguments: [String], mutant: Int, reached: URL? = nil, output: URL, limit: Limit,
        sign: @Sendable (Substring) -> String?
    ) async throws -> Trial {
        let process = Process()
        process.executableURL = URL(filePath: "/bin/sh")
        // What an endless loop collects must not take all memory.
        process.arguments =
            ["-c", "ulimit -v 12000000; ulimit -c 0; exec \"$@\" >\"$0\" 2>&1", output.path, program.path] + arguments
        var environment = ProcessInfo.processInfo.environment
        environment["NO_COLOR"] = "1"
        environment["SWIFT_BACKTRACE"] = "enable=no"
        environment["SWT_EXPERIMENTAL_MAXIMUM_PARALLELIZATION_WIDTH"] = "1"
        environment[Switches.variable] = "\(mutant)"
        if let reached { environment[Switches.reachedVariable] = reached.path }
        process.environment = environment
        _ = FileManager.default.createFile(atPath: output.path, contents: nil)
        let reader = try FileHandle(forReadingFrom: output)
        try process.run()
        let pid = process.processIdentifier

        var used = 0.0
        var lastProgress = ContinuousClock.now
        var rest = ""
        func firstSign() throws -> String? {
            rest += String(decoding: try reader.readToEnd() ?? Data(), as: UTF8.self)
            var lines = rest.split(separator: "\n", omittingEmptySubsequences: false)
            let last = lines.popLast() ?? ""
            for line in lines { if let found = sign(line) { return found } }
            rest = String(last)
            return nil
        }
        func ended(_ outcome: Outcome) -> Trial {
            kill(pid, SIGKILL)
            process.waitUntilExit()
            return Trial(outcome: outcome, processor: used)
        }
        while process.isRunning {
            // Nothing tells when another process has used some of a processor, or none for a while.
            try await Task.sleep(for: .milliseconds(20))
            if let now = processorTime(of: pid), now > used {
                used = now
                lastProgress = .now
            }
            if let found = try firstSign() { return ended(.failed(found)) }
            if used > limit.processor { return ended(.failed("endless: \(Int(used)) s of a processor")) }
            if lastProgress.duration(to: .now) > .seconds(limit.idle) { return ended(.failed("waits for ever")) }
        }
        process.waitUntilExit()
        if let found = try firstSign() { return Trial(outcome: .failed(found), processor: used) }
        if process.terminationReason == .uncaughtSignal || process.terminationStatus != 0 {
            let text = (try? String(contentsOf: output, encoding: .utf8)) ?? ""
            let reason = text.split(separator: "\n").first { $0.contains("Fatal error") }
            return Trial(
                outcome: .failed("trap: " + (reason.map { String($0.suffix(160)) } ?? "ended by itself")),
                processor: used)
        }
        return Trial(outcome: .passed, processor: used)
    }

    private static func processorTime(of pid: Int32) -> Double? {
        guard let text = try? String(contentsOfFile: "/proc/\(pid)/stat", encoding: .utf8),
            let end = text.lastIndex(of: ")")
        else { return nil }
        let fields = text[end...].split(separator: " ")
        guard fields.count > 13, let user = Double(fields[12]), let system = Double(fields[13]) else { return nil }
        return (user + system) / Double(sysconf(Int32(_SC_CLK_TCK)))
    }
}
