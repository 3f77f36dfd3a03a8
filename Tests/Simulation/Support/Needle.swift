import Glibc

/// Bytes that must not be found. Everything that is reported and logged is searched for them, so the search goes byte
/// by byte: Swift's own search of strings took a third of a run's time.
struct Needle: Sendable {
    private let bytes: [UInt8]

    init(_ text: String) { bytes = Array(text.utf8) }

    func isIn(_ text: String) -> Bool {
        var text = text
        return text.withUTF8 { isIn(UnsafeRawBufferPointer($0)) }
    }

    func isIn(_ haystack: UnsafeRawBufferPointer) -> Bool {
        guard let first = bytes.first else { return true }
        var rest = haystack[...]
        while rest.count >= bytes.count, let start = UnsafeRawBufferPointer(rebasing: rest).baseAddress,
            let found = memchr(start, Int32(first), rest.count - bytes.count + 1)
        {
            if memcmp(found, bytes, bytes.count) == 0 { return true }
            rest = rest.dropFirst(UnsafeRawPointer(found) - start + 1)
        }
        return false
    }
}
