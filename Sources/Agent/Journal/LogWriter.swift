import Glibc
import Logging
import NIOCore
import Synchronization
import Systemd
import Vocabulary

/// One record of the log, ready to be written.
struct LogEntry: Sendable {
    /// For the journal.
    var fields: [JournalField]
    /// For standard error.
    var line: [UInt8]

    var size: Int { fields.reduce(line.count) { $0 + $1.value.count } }
}

/// Writes the log on a thread of its own, in the order in which entries are added.
///
/// A journal that does not read blocks everything that writes to it, once its queue is full, and so does a pipe. Nothing
/// else may wait for that. Entries for which there is no room are dropped and counted, until all others are written.
final class LogWriter: Sendable {
    /// How many entries may wait.
    static let mostEntries = 4096
    /// How many bytes they may have.
    static let mostBytes = 4 << 20

    /// Whether entries go to the journal. Otherwise, and if the journal refuses one, they are lines.
    let usesJournal: Bool
    private let output: CInt
    /// Its thread is the one that may be blocked.
    private let loop: any EventLoop
    /// The place of ``level`` among all.
    private let levelIndex = Atomic<Int>(0)
    private let entries = Atomic<Int>(0)
    private let bytes = Atomic<Int>(0)
    /// Those that are not told yet. While there are any, further entries are dropped, too.
    private let dropped = Atomic<Int>(0)
    /// Those that could not be written, and are not told yet.
    private let failed = Atomic<Int>(0)

    /// - Parameters:
    ///   - loop: a loop on which nothing else runs.
    ///   - output: what lines are written to.
    init(on loop: any EventLoop, usesJournal: Bool = Journal.isAttached, output: CInt = STDERR_FILENO) {
        (self.loop, self.usesJournal, self.output) = (loop, usesJournal, output)
    }

    /// What is less than this is not to be added. May be read and set on any thread.
    var level: Logger.Level {
        get { Logger.Level.allCases[levelIndex.load(ordering: .relaxed)] }
        set { levelIndex.store(Logger.Level.allCases.firstIndex(of: newValue) ?? 0, ordering: .relaxed) }
    }

    /// Returns at once. May be called on any thread.
    func add(_ entry: LogEntry) {
        guard !countsAsDropped() else { return }
        let size = entry.size
        let (count, sum) = (
            entries.add(1, ordering: .relaxed).newValue, bytes.add(size, ordering: .relaxed).newValue
        )
        let isDropped = count > Self.mostEntries || sum > Self.mostBytes
        if isDropped { dropped.add(1, ordering: .relaxed) }
        loop.execute { [entry = isDropped ? nil : entry] in
            if let entry { self.write(entry) }
            self.release(size)
        }
    }

    /// Waits until everything is written, but not longer than `patience`.
    ///
    /// - Parameter other: a loop that does not write.
    func finish(within patience: TimeAmount, on other: any EventLoop) {
        let finished = other.makePromise(of: Void.self)
        // The later one has no effect.
        other.scheduleTask(in: patience) { finished.succeed() }
        loop.execute { finished.succeed() }
        try? finished.futureResult.wait()
    }

    private func countsAsDropped() -> Bool {
        var seen = dropped.load(ordering: .relaxed)
        while seen > 0 {
            let (isCounted, present) = dropped.compareExchange(
                expected: seen, desired: seen + 1, ordering: .relaxed)
            if isCounted { return true }
            seen = present
        }
        return false
    }

    private func release(_ size: Int) {
        bytes.subtract(size, ordering: .relaxed)
        guard entries.subtract(1, ordering: .relaxed).newValue == 0 else { return }
        let count = dropped.exchange(0, ordering: .relaxed)
        if count > 0 { write(LogEntry(dropped: count, usesJournal: usesJournal)) }
    }

    private func write(_ entry: LogEntry) {
        var count = failed.load(ordering: .relaxed)
        if count > 0, put(LogEntry(failed: count)) { count = 0 }
        if count > 0 || !put(entry) { count += 1 }
        failed.store(count, ordering: .relaxed)
    }

    private func put(_ entry: LogEntry) -> Bool {
        if usesJournal, (try? Journal.send(entry.fields)) != nil { return true }
        return writeAll(entry.line, to: output) == nil
    }
}

extension LogEntry {
    fileprivate init(dropped count: Int, usesJournal: Bool) {
        self.init(
            missing: "\(count) log entr\(count == 1 ? "y was" : "ies were") dropped here, because "
                + "\(usesJournal ? "the journal" : "standard error") was not read")
    }

    fileprivate init(failed count: Int) {
        self.init(missing: "\(count) log entr\(count == 1 ? "y" : "ies") could not be written here")
    }

    private init(missing text: String) {
        fields = [.message(text), .priority(.warning), JournalField(.identifier, "holdfastd")]
        line = Array("warning: \(text)\n".utf8)
    }
}
