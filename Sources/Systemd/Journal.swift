internal import CSystemd
internal import Glibc

/// The native protocol of the journal: entries with fields, instead of lines on stderr.
public enum Journal {
    /// Whether stderr goes to the journal, so that native entries belong where the lines would have gone.
    ///
    /// `$JOURNAL_STREAM` names device and inode of the journal's stream. A child with redirected stderr inherits the
    /// variable but not the stream, so the two are compared: systemd.exec(5).
    public static var isAttached: Bool {
        isAttached(STDERR_FILENO, to: getenv("JOURNAL_STREAM").map { String(cString: $0) })
    }

    /// Whether a descriptor is the stream of this device and inode.
    static func isAttached(_ descriptor: Int32, to stream: String?) -> Bool {
        guard let stream else { return false }
        let parts = stream.utf8.split(separator: UInt8(ascii: ":"), omittingEmptySubsequences: false)
        guard parts.count == 2, let device = UInt64(Substring(parts[0])), let inode = UInt64(Substring(parts[1])) else {
            return false
        }
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { return false }
        return UInt64(status.st_dev) == device && UInt64(status.st_ino) == inode
    }

    /// Writes one entry: sd_journal_sendv(3).
    ///
    /// - Throws: ``JournalError`` when the journal did not take it; the caller then writes a line on stderr.
    public static func send(_ fields: [JournalField]) throws(JournalError) {
        var entry = encode(fields)
        let result = entry.bytes.withUnsafeMutableBytes { buffer -> Int32 in
            guard let base = buffer.baseAddress else { return 0 }
            let vectors = entry.ranges.map { iovec(iov_base: base + $0.lowerBound, iov_len: $0.count) }
            return sd_journal_sendv(vectors, Int32(clamping: vectors.count))
        }
        if result < 0 { throw JournalError(code: -result) }
    }

    /// Encodes all fields as `NAME=value` in one piece of memory, and returns where each one is. The length of each is
    /// passed along, so a value may hold any byte.
    static func encode(_ fields: [JournalField]) -> (bytes: [UInt8], ranges: [Range<Int>]) {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(fields.reduce(0) { $0 + $1.name.description.utf8.count + 1 + $1.value.count })
        var ranges: [Range<Int>] = []
        ranges.reserveCapacity(fields.count)
        for field in fields {
            let start = bytes.count
            bytes.append(contentsOf: field.name.description.utf8)
            bytes.append(UInt8(ascii: "="))
            bytes.append(contentsOf: field.value)
            ranges.append(start..<bytes.count)
        }
        return (bytes, ranges)
    }
}

/// The journal did not take an entry.
public struct JournalError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The `errno`.
    public let code: Int32

    public var description: String { "the journal did not accept the entry: \(String(cString: strerror(code)))" }
}
