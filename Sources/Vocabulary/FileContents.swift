import Glibc

/// Why the contents of a file are not known.
public enum FileError: Error, Hashable, Sendable {
    /// The `errno` of the call that failed.
    case system(Int32)
    /// It is a directory, a pipe or a device.
    case notRegular
}

/// Returns the contents of a regular file, at most so many bytes of them, even if the file grows meanwhile. Blocks on the
/// file system.
public func fileContents(_ path: String, atMost limit: Int) throws(FileError) -> [UInt8] {
    // Without O_NONBLOCK, a pipe without a writer would block the thread forever.
    let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
    guard descriptor >= 0 else { throw .system(errno) }
    defer { close(descriptor) }
    var status = stat()
    guard fstat(descriptor, &status) == 0 else { throw .system(errno) }
    guard status.st_mode & S_IFMT == S_IFREG else { throw .notRegular }
    var contents: [UInt8] = []
    var part = [UInt8](repeating: 0, count: min(limit, 64 << 10))
    while contents.count < limit {
        let count = read(descriptor, &part, min(part.count, limit - contents.count))
        if count < 0, errno == EINTR { continue }
        guard count >= 0 else { throw .system(errno) }
        guard count > 0 else { break }
        contents += part[..<count]
    }
    return contents
}

/// Writes all of the bytes. Blocks, even if the descriptor does not: that may be the choice of another process that has it.
///
/// - Returns: the `errno`, after which some of them may be written; `nil` if there was no error.
public func writeAll(_ bytes: [UInt8], to descriptor: Int32) -> Int32? {
    var rest = bytes[...]
    while !rest.isEmpty {
        let written = rest.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
        if written < 0, errno == EINTR { continue }
        if written < 0, errno == EAGAIN {
            var room = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
            _ = poll(&room, 1, -1)
            continue
        }
        guard written > 0 else { return errno }
        rest = rest.dropFirst(written)
    }
    return nil
}
