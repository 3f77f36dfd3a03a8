internal import Glibc
internal import Vocabulary

/// A write-ahead log, read without SQLite.
///
/// SQLite takes the frames of a log up to the first one whose checksum is wrong, and says nothing about those behind it.
/// That is right for the torn end that a kill or a loss of power leaves. If whole transactions follow, they would be lost
/// without a word.
///
/// The format is in SQLite's "Database File Format", section 4. The checksum of a frame continues the one that is stored
/// in the frame before it, so frames behind a damaged one can be checked too.
struct WriteAheadLog {
    /// A place that SQLite would not read past, with whole transactions behind it.
    struct Damage: Hashable {
        /// In bytes from the start of the file.
        var offset: Int
        /// The whole transactions behind it.
        var transactions: Int
        /// How many of these are lost in any case, because it is not known which pages they belong on top of.
        var lost: Int
        /// Whether the disk can read all of the log.
        var isReadable = true
    }

    private let header: LogHeader
    private var frames: [Frame] = []
    /// The frames that can be given to SQLite; a transaction that does not end among them is lost.
    private var usable: Range<Int> = 0..<0
    private var isReadable: Bool

    private enum Frame {
        case whole(page: UInt32, isCommit: Bool)
        /// Its contents are wrong, but it belongs to this log.
        case damaged(page: UInt32, role: LogFrame.Role)
        /// It was left by an earlier use of the file, or its page is not known.
        case foreign
        /// The disk cannot read it.
        case unreadable

        var isWhole: Bool { if case .whole = self { true } else { false } }
        var isCommit: Bool { if case .whole(_, isCommit: true) = self { true } else { false } }

        /// - Parameter pages: the largest size that the database had.
        func isUsable(in pages: UInt32) -> Bool {
            switch self {
            case .whole: true
            case .damaged(let page, _): page <= pages
            case .foreign, .unreadable: false
            }
        }
    }

    /// - Returns: `nil` if there is no log, or nothing in it.
    init?(path: String) throws(StoreError) {
        guard let file = try LogFile(path, O_RDONLY), let header = try LogHeader(file) else { return nil }
        self.header = header
        isReadable = header.isReadable
        var frame = LogFrame(pageSize: header.pageSize)
        var checksum = header.storedChecksum
        var pages: UInt32 = 0
        while let isRead = try frame.read(from: file, at: header.offset(of: frames.count)) {
            if !isRead {
                frames.append(.unreadable)
                isReadable = false
            } else if frame.salts != header.salts || frame.page == 0 {
                frames.append(.foreign)
            } else if frame.checksum(after: checksum, isBigEndian: header.isBigEndian) == frame.storedChecksum {
                frames.append(.whole(page: frame.page, isCommit: frame.isCommit))
                pages = max(pages, frame.pagesAfterCommit)
            } else {
                frames.append(.damaged(page: frame.page, role: frame.role))
            }
            checksum = frame.storedChecksum
        }
        usable = 0..<(frames.firstIndex { !$0.isUsable(in: pages) } ?? frames.count)
        while let index = firstUnusable() { usable = 0..<index }
    }

    /// Returns the last frame that must not be given to SQLite, nor anything behind it: its page would be an older one
    /// than the pages that refer to it, and SQLite would not notice.
    private func firstUnusable() -> Int? {
        var newer: Set<UInt32> = []
        for index in usable.reversed() {
            switch frames[index] {
            case .whole(let page, _): newer.insert(page)
            case .damaged(let page, .other) where !newer.contains(page): return index
            case .damaged, .foreign, .unreadable: break
            }
        }
        return nil
    }

    /// In bytes.
    var size: Int { header.offset(of: frames.count) }

    /// The whole transactions in it.
    var transactions: Int { frames.count(where: \.isCommit) }

    /// What all frames of this use of the file have, as bytes of the header.
    var salts: [UInt8] { header.salts }

    /// The frames at its start that SQLite reads.
    var readable: Int { header.isIntact ? frames.prefix(while: \.isWhole).count : 0 }

    /// What a frame with a page of the usual size takes.
    static let bytesOfFrame = LogFrame.headerSize + 4096

    /// - Returns: `nil` if there is no log, or nothing in it.
    static func salts(of path: String) throws(StoreError) -> [UInt8]? {
        guard let file = try LogFile(path, O_RDONLY) else { return nil }
        return try LogHeader(file)?.salts
    }

    /// `nil` if at most the end is missing.
    var damage: Damage? {
        let start = readable
        let transactions = frames[start...].count(where: \.isCommit)
        // SQLite would not open a log that the disk cannot read.
        guard transactions > 0 || !isReadable else { return nil }
        return Damage(
            offset: header.isIntact ? header.offset(of: start) : 0, transactions: transactions,
            lost: frames[max(start, usable.upperBound)...].count(where: \.isCommit), isReadable: isReadable)
    }

    /// Writes a log that SQLite reads past the damage, as far as that is possible.
    ///
    /// A damaged page becomes one that SQLite refuses to read, unless a later frame has the page as well: an older one
    /// would bring back rows that were removed. Of the first page an older one is as good.
    ///
    /// - Parameters:
    ///   - path: where this log is now.
    ///   - pages: others of which an older one is good enough.
    func mend(from path: String, to newPath: String, keeping pages: Set<UInt32>) throws(StoreError) {
        guard let old = try LogFile(path, O_RDONLY),
            let new = try LogFile(newPath, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW)
        else { return }
        var header = header
        var checksum = try header.write(to: new)
        var frame = LogFrame(pageSize: header.pageSize)
        var count = 0
        for index in usable {
            guard try frame.read(from: old, at: header.offset(of: index)) == true else { break }
            if case .damaged(let page, let role) = frames[index] {
                guard role == .tree, !pages.contains(page) else { continue }
                frame.erase()
            }
            checksum = frame.checksum(after: checksum, isBigEndian: header.isBigEndian)
            frame.storedChecksum = checksum
            try frame.write(to: new, at: header.offset(of: count))
            count += 1
        }
    }
}

extension WriteAheadLog.Damage: CustomStringConvertible {
    /// What is wrong, for people.
    var description: String {
        let whole = "\(transactions) transaction\(transactions == 1 ? "" : "s")"
        let fault = isReadable ? "is wrong" : "cannot be read"
        return "byte \(offset) of the write-ahead log \(fault), with \(whole) behind it"
            + (lost == 0
                ? ""
                : ", \(lost) of them unreadable: the disk is damaged, or lost power with durability = \"normal\"")
    }
}

/// The sums over the words of a log, up to some place in it.
private struct LogChecksum: Equatable {
    var first: UInt32
    var second: UInt32

    mutating func add(_ bytes: UnsafeRawBufferPointer, isBigEndian: Bool) {
        func word(_ place: Int) -> UInt32 {
            let word = bytes.loadUnaligned(fromByteOffset: place, as: UInt32.self)
            return isBigEndian ? UInt32(bigEndian: word) : UInt32(littleEndian: word)
        }
        for place in stride(from: 0, to: bytes.count, by: 8) {
            first &+= word(place) &+ second
            second &+= word(place + 4) &+ first
        }
    }
}

extension [UInt8] {
    /// The number of four bytes at a place, as all numbers of a log are stored.
    fileprivate subscript(number place: Int) -> UInt32 {
        get { withUnsafeBytes { UInt32(bigEndian: $0.loadUnaligned(fromByteOffset: place, as: UInt32.self)) } }
        set { withUnsafeMutableBytes { $0.storeBytes(of: newValue.bigEndian, toByteOffset: place, as: UInt32.self) } }
    }

    fileprivate subscript(checksum place: Int) -> LogChecksum {
        get { LogChecksum(first: self[number: place], second: self[number: place + 4]) }
        set { (self[number: place], self[number: place + 4]) = (newValue.first, newValue.second) }
    }
}

private struct LogHeader {
    private static let size = 32
    private static let magic: UInt32 = 0x377F_0682
    private var bytes: [UInt8]
    /// Whether it is as SQLite wrote it. Otherwise what it says is taken from the first frame, or is what SQLite writes.
    let isIntact: Bool
    /// Whether the disk can read it.
    let isReadable: Bool
    let pageSize: Int
    let isBigEndian: Bool
    /// The two numbers that all frames of this use of the file have.
    let salts: [UInt8]

    /// - Returns: `nil` if the file is shorter.
    init?(_ file: borrowing LogFile) throws(StoreError) {
        bytes = [UInt8](repeating: 0, count: Self.size)
        guard let isRead = try file.read(&bytes, at: 0) else { return nil }
        isReadable = isRead
        let isBigEndian = bytes[number: 0] == Self.magic | 1
        let pageSize = Int(bytes[number: 8])
        isIntact =
            bytes[number: 0] & ~1 == Self.magic && (512...65536).contains(pageSize)
            && Self.sum(bytes, isBigEndian) == bytes[checksum: 24]
        guard !isIntact else {
            (self.isBigEndian, self.pageSize, salts) = (isBigEndian, pageSize, Array(bytes[16..<24]))
            return
        }
        (self.isBigEndian, self.pageSize) = (false, 4096)
        var salts = [UInt8](repeating: 0, count: 8)
        guard try file.read(&salts, at: Self.size + 8) != nil else { return nil }
        self.salts = salts
    }

    private static func sum(_ bytes: [UInt8], _ isBigEndian: Bool) -> LogChecksum {
        var sum = LogChecksum(first: 0, second: 0)
        bytes.withUnsafeBytes { sum.add(.init(rebasing: $0[..<24]), isBigEndian: isBigEndian) }
        return sum
    }

    var storedChecksum: LogChecksum { bytes[checksum: 24] }

    func offset(of frame: Int) -> Int { Self.size + frame * (LogFrame.headerSize + pageSize) }

    /// - Returns: the checksum that the first frame continues.
    mutating func write(to file: borrowing LogFile) throws(StoreError) -> LogChecksum {
        if !isIntact {
            (bytes[number: 0], bytes[number: 4], bytes[number: 8]) = (Self.magic, 3_007_000, UInt32(pageSize))
            bytes.replaceSubrange(16..<24, with: salts)
            bytes[checksum: 24] = Self.sum(bytes, isBigEndian)
        }
        try file.write(bytes, at: 0)
        return storedChecksum
    }
}

/// A page of the database as one transaction left it.
private struct LogFrame {
    static let headerSize = 24
    private var bytes: [UInt8]

    /// What a page is for, as its first byte says.
    enum Role: Equatable {
        /// The first page of the file.
        case first
        /// A page of a table or an index.
        case tree
        /// A part of a large value, or a page that is not used.
        case other
    }

    init(pageSize: Int) { bytes = [UInt8](repeating: 0, count: Self.headerSize + pageSize) }

    var role: Role {
        switch bytes[Self.headerSize] {
        case _ where page == 1: .first
        case 2, 5, 10, 13: .tree
        default: .other
        }
    }

    var page: UInt32 { bytes[number: 0] }
    /// The size of the database after the transaction that ends here; 0 if none does.
    var pagesAfterCommit: UInt32 { bytes[number: 4] }
    var isCommit: Bool { pagesAfterCommit != 0 }
    var salts: [UInt8] { Array(bytes[8..<16]) }
    var storedChecksum: LogChecksum {
        get { bytes[checksum: 16] }
        set { bytes[checksum: 16] = newValue }
    }

    func checksum(after checksum: LogChecksum, isBigEndian: Bool) -> LogChecksum {
        var checksum = checksum
        bytes.withUnsafeBytes { bytes in
            checksum.add(.init(rebasing: bytes[..<8]), isBigEndian: isBigEndian)
            checksum.add(.init(rebasing: bytes[Self.headerSize...]), isBigEndian: isBigEndian)
        }
        return checksum
    }

    /// Replaces the page by one that SQLite does not accept, which ends no transaction.
    mutating func erase() {
        bytes[number: 4] = 0
        for place in Self.headerSize..<bytes.count { bytes[place] = 0 }
    }

    /// - Returns: whether the disk can read it; `nil` if there is no whole one.
    mutating func read(from file: borrowing LogFile, at offset: Int) throws(StoreError) -> Bool? {
        try file.read(&bytes, at: offset)
    }

    func write(to file: borrowing LogFile, at offset: Int) throws(StoreError) { try file.write(bytes, at: offset) }
}

private struct LogFile: ~Copyable {
    private let path: String
    private let descriptor: Int32

    /// - Returns: `nil` if it does not exist.
    init?(_ path: String, _ flags: Int32) throws(StoreError) {
        self.path = path
        descriptor = open(path, flags | O_CLOEXEC, 0o600)
        guard descriptor < 0 else { return }
        guard errno != ENOENT else { return nil }
        throw .unusable(path, errno)
    }

    deinit { close(descriptor) }

    /// Fills the buffer.
    ///
    /// - Returns: whether the disk can read them; `nil` if the file does not have so many bytes there.
    func read(_ bytes: inout [UInt8], at offset: Int) throws(StoreError) -> Bool? {
        var done = 0
        var attempts = 0
        while done < bytes.count {
            let count = bytes.withUnsafeMutableBytes {
                pread(descriptor, $0.baseAddress.map { $0 + done }, $0.count - done, off_t(offset + done))
            }
            if count < 0, errno == EINTR { continue }
            if count < 0, errno == EIO {
                attempts += 1
                if attempts < 2 { continue }
                for place in bytes.indices { bytes[place] = 0 }
                return false
            }
            guard count >= 0 else { throw .failed(path: path, cause: systemText(errno)) }
            if count == 0 { return nil }
            done += count
        }
        return true
    }

    func write(_ bytes: [UInt8], at offset: Int) throws(StoreError) {
        var done = 0
        while done < bytes.count {
            let count = bytes.withUnsafeBytes {
                pwrite(descriptor, $0.baseAddress.map { $0 + done }, $0.count - done, off_t(offset + done))
            }
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else {
                guard [ENOSPC, EDQUOT, EFBIG].contains(errno) else {
                    throw .unwritable(path: path, cause: systemText(errno))
                }
                throw .full(path: path, cause: systemText(errno))
            }
            done += count
        }
    }
}
