internal import Glibc
internal import MQTT
internal import Vocabulary

/// The high-water mark of the write-ahead log: a small file beside the database that says how far the log went.
///
/// If the log is removed, cut short or replaced while no daemon runs, SQLite opens the database without the transactions
/// that were in it, and says nothing. The mark shows it. It is not flushed, so it means something only until the host is
/// booted again.
final class LogMark {
    /// What its name ends with.
    static let suffix = "-mark"

    private let database: String
    private let boot: String
    private let descriptor: Int32
    /// What was written last; `nil` when the log may have begun again, or the database has changed.
    private var content: Content?

    /// - Returns: `nil` if it cannot be created, or the kernel does not identify this boot; damage is then found as far
    ///   as SQLite finds it.
    init?(ofDatabase path: String) {
        guard let boot = Content.presentBoot else { return nil }
        let descriptor = open(path + Self.suffix, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { return nil }
        (database, self.boot, self.descriptor) = (path, boot, descriptor)
    }

    deinit { close(descriptor) }

    /// Notes that a transaction was written to the log, which has so many frames now.
    func set(frames: Int) {
        if content == nil, let file = Content.File(database),
            let salts = (try? WriteAheadLog.salts(of: database + "-wal")) ?? nil
        {
            content = Content(boot: boot, salts: salts, frames: frames, file: file)
        }
        content?.frames = frames
        if let content { write(content.text) }
    }

    /// Notes that the log was written back into the database: at least its time has changed.
    func fileHasChanged() { content = nil }

    /// Notes that nothing is in the log only. Must be called before SQLite removes it or begins it again.
    func clear() {
        content = nil
        write(Content.nothing)
    }

    /// Notes how far the log goes that SQLite was to remove, if it is still there.
    func setAgain() {
        guard let log = (try? WriteAheadLog(path: database + "-wal")) ?? nil, log.readable > 0 else { return }
        set(frames: log.readable)
    }

    /// A mark that lags behind the log is true; one that could not be cleared is emptied.
    private func write(_ text: String) {
        var text = text
        let written = text.withUTF8 { pwrite(descriptor, $0.baseAddress, $0.count, 0) == $0.count }
        if !written { ftruncate(descriptor, 0) }
    }
}

extension LogMark {
    /// What the file says.
    struct Content: Equatable {
        fileprivate let boot: String
        /// What all frames of this use of the log have, as bytes of its header.
        fileprivate let salts: [UInt8]
        /// How many there are; 0 when the database has everything.
        fileprivate var frames: Int
        fileprivate let file: File

        /// The database, to see whether another program has written the log back, as sqlite3(1) does.
        struct File: Equatable {
            let size: Int
            /// In nanoseconds since 1970.
            let modified: Int

            init(size: Int, modified: Int) { (self.size, self.modified) = (size, modified) }

            init?(_ path: String) {
                var status = stat()
                guard stat(path, &status) == 0 else { return nil }
                size = Int(status.st_size)
                modified = status.st_mtim.tv_sec * 1_000_000_000 + status.st_mtim.tv_nsec
            }
        }
    }
}

extension LogMark.Content {
    static var presentBoot: String? {
        guard let text = try? fileContents("/proc/sys/kernel/random/boot_id", atMost: 64) else { return nil }
        return String(decoding: text.prefix { $0 != 10 }, as: UTF8.self)
    }

    /// The longest text has 36 + 16 + 3 × 19 digits, and what separates them.
    private static let length = 128
    fileprivate static let nothing = padded("0")

    private static func padded(_ text: String) -> String {
        text + String(repeating: " ", count: max(0, length - 1 - text.utf8.count)) + "\n"
    }

    fileprivate var text: String {
        let salts = salts.reduce(0) { $0 << 8 | UInt64($1) }
        return Self.padded("\(frames) \(boot) \(salts) \(file.size) \(file.modified)")
    }

    /// - Returns: `nil` if there is no mark. One that does not say how far the log went has no frames.
    init?(ofDatabase path: String) {
        guard let bytes = try? fileContents(path + LogMark.suffix, atMost: Self.length) else { return nil }
        let fields = String(decoding: bytes, as: UTF8.self).split { $0 == " " || $0 == "\n" }
        let numbers = fields.map { UInt64($0) }
        guard fields.count == 5, let frames = numbers[0].flatMap(Int.init(exactly:)), let salts = numbers[2],
            let size = numbers[3].flatMap(Int.init(exactly:)), let modified = numbers[4].flatMap(Int.init(exactly:))
        else {
            self.init(boot: "", salts: [], frames: 0, file: File(size: 0, modified: 0))
            return
        }
        self.init(
            boot: String(fields[1]), salts: withUnsafeBytes(of: salts.bigEndian) { Array($0) }, frames: frames,
            file: File(size: size, modified: modified))
    }

    /// What is not there any more of the log that the mark speaks of.
    ///
    /// - Returns: `nil` if nothing is known to be lost.
    func missing(from log: WriteAheadLog?, ofDatabase path: String) -> Missing? {
        guard frames > 0, boot == Self.presentBoot, file == File(path) else { return nil }
        let readable = log.map { $0.salts == salts ? $0.readable : 0 } ?? 0
        guard readable < frames else { return nil }
        return Missing(frames: frames - readable, isWhole: readable == 0)
    }

    /// Frames that were in the log.
    struct Missing: CustomStringConvertible {
        let frames: Int
        let isWhole: Bool

        var bytes: Int { frames * WriteAheadLog.bytesOfFrame }
        var description: String {
            isWhole
                ? "its write-ahead log was removed, replaced or emptied while no daemon ran"
                : "the last \(frames) pages of its write-ahead log were cut off or overwritten while no daemon ran"
        }
    }
}
