internal import CJoinedWrites
internal import CSQLite
internal import Glibc
internal import NIOCore
internal import Vocabulary

/// The part of SQLite's C API that the store needs. This is the only file that calls it.
///
/// Statements are prepared once and kept. Values are always bound, never written into the text of a statement.
final class Database {
    let path: String
    private let handle: OpaquePointer
    private var isClosed = false
    private var statements: [String: OpaquePointer] = [:]
    /// The statements whose text is a constant of the program, by its address: hashing the text takes as long as a
    /// small statement.
    private var constants: [UnsafePointer<UInt8>: OpaquePointer] = [:]

    /// A value on its way into a statement.
    enum Value {
        case null
        case int64(Int64)
        case text(String)
        /// Copied once, into the library.
        case blob(ByteBuffer)

        static func integer(_ value: some FixedWidthInteger) -> Value { .int64(Int64(value)) }
        static func optional(_ text: String?) -> Value { text.map { .text($0) } ?? .null }
        static func optional(_ value: (some BinaryInteger)?) -> Value { value.map { Value.int64(Int64($0)) } ?? .null }
    }

    /// Opens the file, or creates it.
    init(path: String) throws(StoreError) {
        var opened: OpaquePointer?
        let flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE
        _ = Self.joinsWrites
        let result = sqlite3_open_v2(path, &opened, flags, HOLDFAST_JOINED_WRITES)
        guard let opened else { throw .failed(path: path, cause: "out of memory") }
        guard result == SQLITE_OK else {
            let error = Self.error(opened, result, path)
            sqlite3_close_v2(opened)
            throw error
        }
        self.path = path
        handle = opened
        waitForLocks(Self.lockPatience)
        // Joined writes need it while others may write, and pages that are written before the commit may have to be
        // written again.
        try execute("PRAGMA cache_spill = OFF")
    }

    /// How long another program's lock is waited for, in milliseconds.
    private static let lockPatience: Int32 = 5000

    /// Keeps every other connection out of the file from its first use until it is closed. Must be called before that
    /// first use.
    ///
    /// SQLite then keeps the index of the log in its own memory. Otherwise the index is a file mapped into memory, and
    /// truncating that file kills the process with SIGBUS. And a transaction that needs more memory than this is written
    /// to the log in parts.
    ///
    /// - Parameter pages: of 4 KiB.
    func excludeOthers(spillingAbove pages: Int = 16_384) throws(StoreError) {
        // SQLite takes a multiple of 256 for OFF as well as for the number.
        try execute("PRAGMA locking_mode = EXCLUSIVE; PRAGMA cache_spill = \(pages); PRAGMA cache_spill = ON")
    }

    /// Whether SQLite knows the VFS of that name. It is told once in the process.
    private static let joinsWrites = holdfast_join_writes() == SQLITE_OK

    /// Makes ``close()`` leave the file and its log as they are.
    func keepLog() { holdfast_keep_log(handle) }

    // MARK: The log

    private var logMark: LogMark?
    /// The frames of a log that is written back into the file.
    private var longLog = Int.max

    /// Writes the log back into the file whenever a transaction has made it this long, and notes after each one how far
    /// the log goes.
    func limitLog(to frames: Int, markedBy mark: LogMark?) {
        (longLog, logMark) = (frames, mark)
        _ = sqlite3_wal_hook(
            handle,
            { context, _, _, frames in
                context.map { Unmanaged<Database>.fromOpaque($0).takeUnretainedValue().logHasGrown(to: Int(frames)) }
                return SQLITE_OK
            }, Unmanaged.passUnretained(self).toOpaque())
    }

    private func logHasGrown(to frames: Int) {
        if frames >= longLog, writeLogBack() { return }
        logMark?.set(frames: frames)
    }

    /// - Returns: whether everything in the log is in the file as well.
    private func writeLogBack() -> Bool {
        var (frames, written): (Int32, Int32) = (-1, -1)
        // What fails here fails again, for a caller, in the next transaction or when the log is emptied.
        _ = sqlite3_wal_checkpoint_v2(handle, nil, SQLITE_CHECKPOINT_PASSIVE, &frames, &written)
        logMark?.fileHasChanged()
        guard frames >= 0, frames == written else { return false }
        logMark?.clear()
        return true
    }

    /// Writes the log back into the file, and gives its room to the file system.
    func emptyLog() throws(StoreError) {
        // The mark must be gone before the frames are.
        _ = writeLogBack()
        try execute("PRAGMA wal_checkpoint(TRUNCATE)")
    }

    /// Sets how long a call waits while another program locks the file, before it fails with ``StoreError/busy``.
    func waitForLocks(_ milliseconds: Int32) { sqlite3_busy_timeout(handle, milliseconds) }

    deinit { close() }

    /// Closes the database, which must not be used afterwards.
    func close() {
        guard !isClosed else { return }
        isClosed = true
        // SQLite writes the log back, and removes it.
        logMark?.clear()
        for statement in statements.values { sqlite3_finalize(statement) }
        statements = [:]
        constants = [:]
        sqlite3_close_v2(handle)
        // Unless it could not.
        logMark?.setAgain()
    }

    /// Whether a transaction is open.
    var inTransaction: Bool { !isClosed && sqlite3_get_autocommit(handle) == 0 }

    /// The number of rows that the last insert, update or delete changed.
    var changes: Int { Int(sqlite3_changes64(handle)) }

    /// The bytes of all pages, as of the last transaction. Pages may be in the log only, or the file longer than that.
    func contentBytes() throws(StoreError) -> Int {
        Int(try (integer("PRAGMA page_count") ?? 0) * (integer("PRAGMA page_size") ?? 0))
    }

    /// Runs statements without values, whose text is our own.
    func execute(_ sql: String) throws(StoreError) {
        guard !isClosed else { throw .closed }
        errno = 0
        let result = sqlite3_exec(handle, sql, nil, nil, nil)
        guard result == SQLITE_OK else { throw error(result, cause: errno) }
    }

    /// Runs one statement, ignoring any rows.
    func run(_ sql: StaticString, _ values: Value...) throws(StoreError) {
        try query(prepared(sql), values) { _ in true }
    }

    /// Does the same with a text that is composed.
    func run(text sql: String, with values: [Value]) throws(StoreError) {
        try query(prepared(sql), values) { _ in true }
    }

    /// Runs one query and calls `each` with every row until it returns `false`.
    func query(
        _ sql: StaticString, _ values: Value..., each: (Row) throws(StoreError) -> Bool
    ) throws(StoreError) {
        try query(prepared(sql), values, each)
    }

    /// Does the same with a text that is composed.
    func query(
        text sql: String, with values: [Value], each: (Row) throws(StoreError) -> Bool
    ) throws(StoreError) {
        try query(prepared(sql), values, each)
    }

    private func query(
        _ statement: OpaquePointer, _ values: [Value], _ each: (Row) throws(StoreError) -> Bool
    ) throws(StoreError) {
        defer { reset(statement) }
        try bind(values, to: statement)
        while true {
            errno = 0
            let result = sqlite3_step(statement)
            if result == SQLITE_DONE { return }
            guard result == SQLITE_ROW else { throw error(result, cause: errno) }
            guard try each(Row(statement: statement)) else { return }
        }
    }

    /// Returns what `read` makes of each row.
    func rows<Element>(
        _ sql: StaticString, _ values: Value..., read: (Row) throws(StoreError) -> Element
    ) throws(StoreError) -> [Element] {
        try rows(prepared(sql), values, read)
    }

    /// Does the same with a text that is composed.
    func rows<Element>(
        text sql: String, with values: [Value], read: (Row) throws(StoreError) -> Element
    ) throws(StoreError) -> [Element] {
        try rows(prepared(sql), values, read)
    }

    private func rows<Element>(
        _ statement: OpaquePointer, _ values: [Value], _ read: (Row) throws(StoreError) -> Element
    ) throws(StoreError) -> [Element] {
        var rows: [Element] = []
        try query(statement, values) { row throws(StoreError) in
            rows.append(try read(row))
            return true
        }
        return rows
    }

    /// Returns the integer in the first column of the only row; `nil` without a row.
    func integer(_ sql: StaticString, _ values: Value...) throws(StoreError) -> Int64? {
        var integer: Int64?
        try query(prepared(sql), values) { row in
            integer = row.integer(0)
            return false
        }
        return integer
    }

    /// Does the same with a text.
    func text(_ sql: StaticString) throws(StoreError) -> String? {
        var text: String?
        try query(prepared(sql), []) { row in
            text = row.text(0)
            return false
        }
        return text
    }

    /// Runs `body` in a transaction: all of its changes are made, or none.
    func transaction<Result>(_ body: () throws(StoreError) -> Result) throws(StoreError) -> Result {
        try run("BEGIN IMMEDIATE")
        do {
            let result = try body()
            try run("COMMIT")
            return result
        } catch {
            // After some failures SQLite has rolled back already. A rollback only drops pages in memory; should it fail
            // all the same, the next BEGIN reports that.
            if inTransaction { try? run("ROLLBACK") }
            throw error
        }
    }

    private func bind(_ values: [Value], to statement: OpaquePointer) throws(StoreError) {
        for (index, value) in values.enumerated() {
            let result = Self.bind(value, to: statement, at: Int32(index) + 1)
            guard result == SQLITE_OK else { throw error(result) }
        }
    }

    private func prepared(_ sql: StaticString) throws(StoreError) -> OpaquePointer {
        if let statement = constants[sql.utf8Start] { return statement }
        let statement = try prepared(sql.description)
        constants[sql.utf8Start] = statement
        return statement
    }

    private func prepared(_ sql: String) throws(StoreError) -> OpaquePointer {
        guard !isClosed else { throw .closed }
        if let statement = statements[sql] { return statement }
        var statement: OpaquePointer?
        let result = sqlite3_prepare_v3(handle, sql, -1, UInt32(SQLITE_PREPARE_PERSISTENT), &statement, nil)
        guard result == SQLITE_OK, let statement else { throw error(result) }
        statements[sql] = statement
        return statement
    }

    /// Makes the statement ready for its next use, and releases the values, payloads among them.
    private func reset(_ statement: OpaquePointer) {
        sqlite3_reset(statement)
        sqlite3_clear_bindings(statement)
    }

    private static func bind(_ value: Value, to statement: OpaquePointer, at index: Int32) -> Int32 {
        // SQLITE_TRANSIENT: copy the bytes now. It is -1 as a pointer to a function, which Swift does not import.
        let copied = unsafeBitCast(-1, to: sqlite3_destructor_type.self)
        switch value {
        case .null:
            return sqlite3_bind_null(statement, index)
        case .int64(let integer):
            return sqlite3_bind_int64(statement, index, integer)
        case .text(var text):
            return text.withUTF8 { bytes in
                bytes.withMemoryRebound(to: CChar.self) { characters in
                    // A null pointer would mean NULL, and an empty text is not NULL.
                    sqlite3_bind_text64(
                        statement, index, characters.baseAddress ?? UnsafePointer(bitPattern: 1),
                        UInt64(characters.count), copied, UInt8(SQLITE_UTF8))
                }
            }
        case .blob(let buffer):
            return buffer.withUnsafeReadableBytes { bytes in
                // A null pointer would mean NULL, and an empty value is not NULL.
                bytes.isEmpty
                    ? sqlite3_bind_zeroblob(statement, index, 0)
                    : sqlite3_bind_blob64(statement, index, bytes.baseAddress, UInt64(bytes.count), copied)
            }
        }
    }

    /// What the library, or its user, has found to be wrong with the file.
    var damage: String?
    var isCorrupt: Bool { damage != nil }

    /// - Parameter cause: the system's error, or 0. SQLite does not keep that of a COMMIT.
    private func error(_ result: Int32, cause: Int32 = 0) -> StoreError {
        let error = Self.error(handle, result, path, cause: cause)
        if case .corrupt(_, let cause) = error, damage == nil { damage = cause }
        return error
    }

    /// SQLITE_IOERR_SHORT_READ, which Swift does not import: the log is shorter than what was written to it.
    private static let shortRead = SQLITE_IOERR | 2 << 8
    /// SQLITE_IOERR_CORRUPTFS: the disk cannot read what was written to it.
    private static let unreadable = SQLITE_IOERR | 33 << 8

    private static func error(
        _ handle: OpaquePointer, _ result: Int32, _ path: String, cause: Int32 = 0
    ) -> StoreError {
        let code = cause != 0 ? cause : sqlite3_system_errno(handle)
        var cause = sqlite3_errmsg(handle).map { String(cString: $0) } ?? "error \(result)"
        switch result & 0xFF {
        case _ where result == shortRead:
            return .corrupt(path: path, cause: "a part of its log is gone")
        case _ where result == unreadable:
            return .corrupt(path: path, cause: "the disk cannot read a part of it (\(systemText(EIO)))")
        case SQLITE_FULL:
            return .full(path: path, cause: cause)
        case SQLITE_CORRUPT, SQLITE_NOTADB:
            return .corrupt(path: path, cause: cause)
        case SQLITE_CANTOPEN where code == EMFILE || code == ENFILE:
            return .failed(path: path, cause: systemText(code))
        case SQLITE_READONLY, SQLITE_CANTOPEN, SQLITE_PERM, SQLITE_AUTH:
            if code != 0 { cause += " (\(systemText(code)))" }
            return .unwritable(path: path, cause: cause)
        case SQLITE_IOERR where code == ENOSPC:
            return .full(path: path, cause: systemText(code))
        case SQLITE_IOERR where code == EDQUOT:
            return .full(path: path, cause: "\(systemText(code)): the daemon's user may not store more there")
        case SQLITE_IOERR where code == EFBIG:
            return .full(path: path, cause: "\(systemText(code)): LimitFSIZE= of the service allows no more")
        case SQLITE_IOERR where code == EROFS || code == EACCES || code == EPERM:
            return .unwritable(path: path, cause: systemText(code))
        case SQLITE_BUSY, SQLITE_LOCKED:
            return .busy(path: path, cause: cause)
        case SQLITE_CONSTRAINT, SQLITE_TOOBIG, SQLITE_MISMATCH, SQLITE_ERROR, SQLITE_RANGE:
            // Neither the disk nor the library has failed: the request contradicts the data.
            return .inconsistent(cause)
        case SQLITE_IOERR where code == EIO:
            return .failed(
                path: path,
                cause: "the disk reports an error (\(systemText(code))); the kernel's log (journalctl -k) may say more")
        default:
            if code != 0 { cause += " (\(systemText(code)))" }
            return .failed(path: path, cause: "\(cause) [\(result)]")
        }
    }
}

/// One row of a result, valid only within the call that it is passed to.
struct Row {
    fileprivate let statement: OpaquePointer

    func integer(_ column: Int32) -> Int64 { sqlite3_column_int64(statement, column) }

    func optionalInteger(_ column: Int32) -> Int64? {
        sqlite3_column_type(statement, column) == SQLITE_NULL ? nil : integer(column)
    }

    /// A time, within the years that can be counted with: the file may say anything.
    func time(_ column: Int32) -> Timestamp {
        Timestamp(rawValue: min(max(integer(column), -Self.longestTime), Self.longestTime))
    }

    func optionalTime(_ column: Int32) -> Timestamp? {
        sqlite3_column_type(statement, column) == SQLITE_NULL ? nil : time(column)
    }

    /// The end of the year 9999, in milliseconds since 1970.
    private static let longestTime: Int64 = 253_402_300_799_999

    /// A number of messages or bytes, which many can be added up of.
    func count(_ column: Int32) -> Int { Int(min(max(integer(column), 0), 1 << 40)) }

    func text(_ column: Int32) -> String {
        guard let bytes = sqlite3_column_text(statement, column) else { return "" }
        let count = Int(sqlite3_column_bytes(statement, column))
        return String(decoding: UnsafeBufferPointer(start: bytes, count: count), as: UTF8.self)
    }

    func optionalText(_ column: Int32) -> String? {
        sqlite3_column_type(statement, column) == SQLITE_NULL ? nil : text(column)
    }

    func optionalBlob(_ column: Int32) -> ByteBuffer? {
        sqlite3_column_type(statement, column) == SQLITE_NULL ? nil : blob(column)
    }

    /// The value in its stored type, for another table.
    func value(_ column: Int32) -> Database.Value {
        switch sqlite3_column_type(statement, column) {
        case SQLITE_NULL: .null
        case SQLITE_INTEGER: .int64(integer(column))
        case SQLITE_TEXT: .text(text(column))
        default: .blob(blob(column))
        }
    }

    func blob(_ column: Int32) -> ByteBuffer {
        guard let bytes = sqlite3_column_blob(statement, column) else { return ByteBuffer() }
        let count = Int(sqlite3_column_bytes(statement, column))
        return ByteBuffer(bytes: UnsafeRawBufferPointer(start: bytes, count: count))
    }
}
