import Dispatch
import Glibc
import MQTT
import NIOCore
import Session
import SessionCore
import Support
import Testing
import Vocabulary

@testable import DurableStore

/// A directory that goes away with its contents.
final class TemporaryDirectory: Sendable {
    let path: String

    init(in parent: String = Support.TemporaryDirectory.parent) throws {
        path = try Support.TemporaryDirectory(in: parent).path
    }

    deinit { Support.TemporaryDirectory.remove(path) }

    /// The files in it, in alphabetical order.
    var names: [String] {
        guard let directory = opendir(path) else { return [] }
        defer { closedir(directory) }
        var names: [String] = []
        while let entry = readdir(directory) {
            let name = withUnsafeBytes(of: entry.pointee.d_name) { bytes in
                String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
            }
            if name != ".", name != ".." { names.append(name) }
        }
        return names.sorted()
    }

    /// The files as kill -9 leaves them at this moment, in a separate directory.
    ///
    /// - Parameter keepsTimes: whether the times of the files are kept. If not, the mark of the log means nothing.
    func copyAsItIs(keepsTimes: Bool = false) throws -> TemporaryDirectory {
        let copy = try TemporaryDirectory()
        for name in names where name != "lock" {
            let (old, new) = ("\(path)/\(name)", "\(copy.path)/\(name)")
            try writeFile(new, readFile(old))
            var status = stat()
            guard keepsTimes, stat(old, &status) == 0 else { continue }
            try #require(utimensat(AT_FDCWD, new, [status.st_atim, status.st_mtim], 0) == 0)
        }
        return copy
    }
}

func readFile(_ path: String) throws -> [UInt8] {
    try fileContents(path, atMost: 1 << 30)
}

func writeFile(_ path: String, _ bytes: [UInt8]) throws {
    let descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0o600)
    try #require(descriptor >= 0, "\(path): \(systemText(errno))")
    defer { close(descriptor) }
    try #require(write(descriptor, bytes, bytes.count) == bytes.count)
}

/// A queue of its own for each store, as the daemon gives it a thread of its own.
final class QueueExecutor: SerialExecutor {
    private let queue = DispatchQueue(label: "store")
    /// Kept for as long as the store.
    private let directory: TemporaryDirectory?

    init(keeping directory: TemporaryDirectory? = nil) {
        self.directory = directory
    }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        queue.async { job.runSynchronously(on: self.asUnownedSerialExecutor()) }
    }
}

func openStore(
    _ directory: String, _ durability: Durability = .normal
) throws(StoreError) -> DurableStore {
    try DurableStore(directory: directory, durability: durability, executor: QueueExecutor())
}

func openStore(
    _ directory: TemporaryDirectory, _ durability: Durability = .normal
) throws(StoreError) -> DurableStore {
    try DurableStore(
        directory: directory.path, durability: durability, executor: QueueExecutor(keeping: directory))
}

func session(_ name: String = "main") throws -> SessionName { try #require(SessionName(name)) }

func id(_ number: UInt16) throws -> PacketID { try #require(PacketID(rawValue: number)) }

func sequence(_ number: Int64) -> MessageSequence { MessageSequence(rawValue: number) }

func message(
    _ number: Int64, _ state: StoredMessage.State = .queued, topic: String = "plant/7", bytes: Int = 5
) -> StoredMessage {
    StoredMessage(
        sequence: sequence(number),
        message: OutboundMessage(
            topic: topic, payload: ByteBuffer(repeating: UInt8(truncatingIfNeeded: number), count: bytes)),
        state: state)
}

extension DurableStore {
    /// One commit of one session.
    func commit(_ session: SessionName, _ changes: SessionChange...) throws(StoreError) {
        try commit([(session, changes)])
    }

    /// The same for changes of its protocol.
    func commit(_ session: SessionName, _ changes: DurableChange...) throws(StoreError) {
        try commit([(session, changes)])
    }

    /// One commit of changes of the protocol.
    func commit(_ batch: [(session: SessionName, changes: [DurableChange])]) throws(StoreError) {
        try commit(batch.map { (session: $0.session, changes: $0.changes.map { SessionChange.mqtt($0) }) })
    }

    /// The protocol's part of a session's durable state.
    func mqtt(_ session: SessionName) throws(StoreError) -> DurableSession { try self.session(session).mqtt }

    /// Does something else to the database than the store would.
    func execute(_ statements: String) throws(StoreError) { try opened().execute(statements) }

    /// Everything that is queued.
    func queue(_ session: SessionName) throws(StoreError) -> [StoredMessage] {
        try load(session, after: .zero, maxCount: .max, maxBytes: .max)
    }

    /// Everything that is quarantined.
    func quarantined(_ session: SessionName) throws(StoreError) -> [StoredMessage] {
        var found: [StoredMessage] = []
        for summary in try summaries(session, .quarantined, limit: .max) {
            if let stored = try message(session, summary.sequence) { found.append(stored) }
        }
        return found
    }
}

extension StoreError {
    var isFull: Bool { code == "store-full" }
}
